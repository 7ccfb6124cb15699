/** Calls as `<function=NAME>` with `<parameter=KEY>` lines; one line break at each end of a value is not part of it. */
import type { MarkupGrammar } from "../markup-scanner.ts";
import { typedValue } from "../typed-value.ts";

export const XML: MarkupGrammar = {
  callOpen: "<function=",
  nameEnd: ">",
  parameterOpen: "<parameter=",
  keyEnd: ">",
  parameterClose: "</parameter>",
  callClose: "</function>",
  blockClose: "</tool_call>",
  isList: false,
  verbatim: null,
  typed: (raw, parameter, tool) => typedValue(raw.replace(/^\r?\n/, "").replace(/\r?\n$/, ""), parameter, tool),
};
