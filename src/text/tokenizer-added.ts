/**
 * Splitting text at added tokens: leftmost, longest, with the tokens' own rules about white space and words
 * (`lstrip`, `rstrip`, `single_word`), in the order in which the Rust library applies them.
 */
import type { AddedToken } from "./tokenizer-files.ts";
import { LiteralSet } from "./tokenizer-literals.ts";

/** A stretch of text, or an added token standing in it. */
export type Part =
  | { readonly token: null; readonly text: string }
  | { readonly token: AddedToken; readonly text: string };

const BLANK = /\p{White_Space}/u;
const WORD = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]/u;

export class AddedTokenSplitter {
  readonly #tokens: ReadonlyMap<string, AddedToken>;
  readonly #literals: LiteralSet;

  /** @param tokens content → token; the content may be a normalized one. */
  constructor(tokens: ReadonlyMap<string, AddedToken>) {
    this.#tokens = tokens;
    this.#literals = new LiteralSet(tokens.keys());
  }

  /**
   * Splits `text`. Only tokens that `cut` accepts become parts; the others are stepped over, so that a token beginning
   * inside one of them is not found. Empty stretches are left out.
   */
  split(text: string, cut: (token: AddedToken) => boolean): Part[] {
    const parts: Part[] = [];
    if (this.#tokens.size === 0) return text.length === 0 ? parts : [{ token: null, text }];
    let open = 0;
    let at = 0;
    while (at < text.length) {
      const length = this.#literals.matchAt(text, at);
      const token = length === 0 ? undefined : this.#tokens.get(text.slice(at, at + length));
      if (token === undefined || (token.singleWord && !standsAlone(text, at, at + length))) {
        at++;
        continue;
      }
      const end = at + length;
      if (!cut(token)) {
        at = end;
        continue;
      }
      const before = text.slice(open, token.lstrip ? startOfBlanks(text, open, at) : at);
      if (before.length > 0) parts.push({ token: null, text: before });
      parts.push({ token, text: text.slice(at, end) });
      at = token.rstrip ? endOfBlanks(text, end) : end;
      open = at;
    }
    if (open < text.length) parts.push({ token: null, text: text.slice(open) });
    return parts;
  }
}

/** White space is never outside the basic plane, so single UTF-16 units are looked at. */
function startOfBlanks(text: string, from: number, end: number): number {
  let at = end;
  while (at > from && BLANK.test(text.charAt(at - 1))) at--;
  return at;
}

function endOfBlanks(text: string, from: number): number {
  let at = from;
  while (at < text.length && BLANK.test(text.charAt(at))) at++;
  return at;
}

function standsAlone(text: string, start: number, end: number): boolean {
  const before = [...text.slice(Math.max(0, start - 2), start)].at(-1) ?? "";
  const after = [...text.slice(end, end + 2)].at(0) ?? "";
  return !WORD.test(before) && !WORD.test(after);
}
