/** LFM2's calls: a list of Python calls. Types are the values' own; arguments without a name take the schema's, in order. */
import { type BracketGrammar, BracketScanner } from "../bracket-scanner.ts";
import type { CallSyntax } from "../call-scanner.ts";
import { readPythonCalls } from "../python-calls.ts";

const LFM2: BracketGrammar = {
  closer: "<|tool_call_end|>",
  head: {
    partial: /^\s{0,4}(?:\[\s{0,4}(?:[A-Za-z_][\w.-]*)?)?$/,
    whole: /^\s{0,4}\[\s{0,4}[A-Za-z_][\w.-]*\($/,
    depth: 2,
  },
  strings: [
    { delimiter: "'", escapes: true },
    { delimiter: '"', escapes: true },
  ],
  read: (value, _isWhole, tools) => {
    const { calls, isWhole } = readPythonCalls(value, tools);
    return isWhole ? calls : null;
  },
  readComplete: (value, tools) => readPythonCalls(value, tools).calls,
};

export const lfm2Syntax: CallSyntax = { opener: "<|tool_call_start|>", scanner: () => new BracketScanner(LFM2) };
