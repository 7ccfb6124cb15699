/** A regular expression as a tree; made by `regex-parser.ts`, used by `regex-automaton.ts`. */
import type { CharSet } from "./charset.ts";

export type RegexTree =
  | { readonly kind: "set"; readonly set: CharSet }
  | { readonly kind: "sequence"; readonly parts: readonly RegexTree[] }
  | { readonly kind: "choice"; readonly options: readonly RegexTree[] }
  /** `max` null: no end. */
  | { readonly kind: "repeat"; readonly of: RegexTree; readonly min: number; readonly max: number | null }
  | { readonly kind: "start" }
  | { readonly kind: "end" };

export class RegexError extends Error {
  override readonly name = "RegexError";
}
