/** What the stream of calls asks of a family: how a call begins, and a machine that reads one attempt at a call. */
import type { CallableTools, ParsedCall, TextEnd } from "./events.ts";

export interface CallSyntax {
  /** What every call (or list of calls) begins with. */
  readonly opener: string;
  scanner(): CallScanner;
}

/**
 * `open`: goes on; `call`: calls are complete and more may follow in this block; `closed`: the block is complete;
 * `impossible`: this is no call.
 */
export type ScanState = "open" | "call" | "closed" | "impossible";

/** Reads what follows an opener, each character once. */
export interface CallScanner {
  /** Takes one UTF-16 unit. */
  step(unit: string): ScanState;
  /** After `impossible`: characters at the end of what was taken that may belong to something else. */
  readonly loose: string;
  /** After `call` and `closed`: the calls that were completed, null for a block that cannot be read. */
  take(tools: CallableTools): readonly ParsedCall[] | null;
  /** The text is over in the middle of the block. */
  finish(end: TextEnd, tools: CallableTools): ScanRest;
}

export interface ScanRest {
  readonly calls: readonly ParsedCall[];
  /** What becomes of the block's text: it was all read, it is text after all, or it is half a call. */
  readonly text: "read" | "text" | "cut";
}

export const NOTHING_LEFT: ScanRest = { calls: [], text: "read" };

/** What an unfinished block is: half a call if the text was cut, else text. */
export function unfinished(end: TextEnd): ScanRest {
  return { calls: [], text: end === "cut" ? "cut" : "text" };
}
