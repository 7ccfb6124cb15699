/** What a filter that tells thoughts from the answer gives on. */
import type { Slice } from "./slice.ts";

export type SplitPiece =
  | ({ readonly type: "reasoning" | "answer" } & Slice)
  /** An answer's channel has ended: a call does not go on in the next one. */
  | { readonly type: "border" };

export interface ReasoningSplit {
  /** Whether `text` and all that follows is an answer as it comes: then nothing is held, and nothing will be. */
  passes(text: string): boolean;
  push(slice: Slice): SplitPiece[];
  /** The text is over: what was held back. */
  finish(): SplitPiece[];
}

export function pieces(type: "reasoning" | "answer", slices: readonly Slice[]): SplitPiece[] {
  return slices.map((slice) => ({ type, ...slice }));
}
