/** Muse's calls: any number of `<atem:invoke name="…">` in one block. White space of values is theirs. */
import type { CallSyntax } from "../call-scanner.ts";
import { type MarkupGrammar, MarkupScanner } from "../markup-scanner.ts";
import { typedOrJson } from "../typed-value.ts";

const MUSE: MarkupGrammar = {
  callOpen: '<atem:invoke name="',
  nameEnd: '">',
  parameterOpen: '<atem:parameter name="',
  keyEnd: '">',
  parameterClose: "</atem:parameter>",
  callClose: "</atem:invoke>",
  blockClose: "</atem:function_calls>",
  isList: true,
  verbatim: null,
  typed: typedOrJson,
};

export const museSyntax: CallSyntax = { opener: "<atem:function_calls>", scanner: () => new MarkupScanner(MUSE) };
