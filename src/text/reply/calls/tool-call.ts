/**
 * Hermes and XML calls: both stand in `<tool_call>…</tool_call>`, and models of either family write the other's body
 * now and then, so the first character decides.
 */
import { BracketScanner } from "../bracket-scanner.ts";
import { type CallScanner, type CallSyntax, type ScanRest, type ScanState, unfinished } from "../call-scanner.ts";
import type { CallableTools, ParsedCall, TextEnd } from "../events.ts";
import { isBlank } from "../literal.ts";
import { MarkupScanner } from "../markup-scanner.ts";
import { HERMES } from "./hermes.ts";
import { XML } from "./xml.ts";

export const toolCallSyntax: CallSyntax = { opener: "<tool_call>", scanner: () => new ToolCallScanner() };

/** Between opener and body stands a line break. */
const BLANKS_MAX = 32;

class ToolCallScanner implements CallScanner {
  private body: CallScanner | null = null;
  private blanks = "";

  get loose(): string {
    return this.body === null ? this.blanks : this.body.loose;
  }

  step(unit: string): ScanState {
    if (this.body !== null) return this.body.step(unit);
    if (isBlank(unit)) {
      this.blanks += unit;
      return this.blanks.length <= BLANKS_MAX ? "open" : "impossible";
    }
    this.body = unit === "<" ? new MarkupScanner(XML) : new BracketScanner(HERMES);
    for (const blank of this.blanks) this.body.step(blank);
    return this.body.step(unit);
  }

  take(tools: CallableTools): readonly ParsedCall[] | null {
    return this.body === null ? null : this.body.take(tools);
  }

  finish(end: TextEnd, tools: CallableTools): ScanRest {
    return this.body === null ? unfinished(end) : this.body.finish(end, tools);
  }
}
