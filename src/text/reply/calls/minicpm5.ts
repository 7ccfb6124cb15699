/** MiniCPM5's calls: `<function name="…"><param name="…">…</param></function>`, values raw or in a CDATA section. */
import type { CallSyntax } from "../call-scanner.ts";
import { type MarkupGrammar, MarkupScanner } from "../markup-scanner.ts";
import { typedValue } from "../typed-value.ts";

const VERBATIM = { open: "<![CDATA[", close: "]]>" };

const MINICPM5: MarkupGrammar = {
  callOpen: null,
  nameEnd: '">',
  parameterOpen: '<param name="',
  keyEnd: '">',
  parameterClose: "</param>",
  callClose: "</function>",
  blockClose: null,
  isList: false,
  verbatim: VERBATIM,
  typed: (raw, parameter, tool) => typedValue(contentOf(raw), parameter, tool),
};

/** What the section holds, for a value that is one section. */
function contentOf(raw: string): string {
  const value = raw.trim();
  const isSection = value.startsWith(VERBATIM.open) && value.indexOf(VERBATIM.close) === value.length - 3;
  return isSection ? value.slice(VERBATIM.open.length, -VERBATIM.close.length) : raw;
}

export const minicpm5Syntax: CallSyntax = { opener: '<function name="', scanner: () => new MarkupScanner(MINICPM5) };
