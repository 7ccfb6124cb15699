/**
 * Where a caller's string must be broken so that no control string can come of it, alone or together with what a
 * template writes around it. A mark put at these places travels through the template and is removed afterwards
 * (`guarded-render.ts`). Strings without such a place are not touched: their ids are those of the whole text.
 */
import { LiteralSet } from "./tokenizer-literals.ts";

/** Places in one string, as UTF-16 offsets in ascending order. */
export interface Breaks {
  /** Inside each control string, and at an edge that is the beginning or the end of one. */
  readonly certain: readonly number[];
  /** Both edges, when the whole string is the inside of a control string; else empty. */
  readonly infix: readonly number[];
}

/** Words whose answer is kept: the keys and names of a few large tool lists. */
const REMEMBERED_INFIXES = 4096;

/** At least what Python's `strip` and JavaScript's `trim` take away. */
const BLANK = /[\s\p{Cc}]/u;

export class ControlGuard {
  readonly controls: readonly string[];
  readonly #literals: LiteralSet;
  /** All control strings, joined by what no well-formed text contains. */
  readonly #joined: string;
  readonly #infixes = new Map<string, boolean>();

  /** @param controls the control strings, each of two characters or more. */
  constructor(controls: readonly string[]) {
    this.controls = controls;
    this.#literals = new LiteralSet(controls);
    this.#joined = controls.join("\ud800");
  }

  /** The places to break `text` (well formed) at; null if there are none. */
  breaks(text: string): Breaks | null {
    const certain: number[] = [];
    if (this.#literals.beginsWithEnd(text)) certain.push(0);
    // A template that trims moves the edge, so the edges inside the white space count as well.
    let start = 0;
    let end = text.length;
    while (start < end && BLANK.test(text.charAt(start))) start++;
    while (end > start && BLANK.test(text.charAt(end - 1))) end--;
    const trimmed = text.slice(start, end);
    if (start > 0 && this.#literals.beginsWithEnd(trimmed)) certain.push(start);
    for (let at = 0; at < text.length; at++) {
      if (this.#literals.matchAt(text, at) > 0) certain.push(afterFirstCharacter(text, at));
    }
    if (end < text.length && this.#literals.endsInBeginning(trimmed)) certain.push(end);
    if (this.#literals.endsInBeginning(text)) certain.push(text.length);
    const infix = this.#isInfix(trimmed) ? [start, end] : [];
    return certain.length + infix.length === 0 ? null : { certain: ascending(certain), infix };
  }

  #isInfix(text: string): boolean {
    if (text.length === 0 || text.length >= this.#literals.longest) return false;
    const known = this.#infixes.get(text);
    if (known !== undefined) return known;
    const found = this.#joined.includes(text);
    if (this.#infixes.size >= REMEMBERED_INFIXES) this.#infixes.clear();
    this.#infixes.set(text, found);
    return found;
  }
}

/** `text` with `mark` at each of the places, which ascend. */
export function insertMarks(text: string, places: readonly number[], mark: string): string {
  let out = "";
  let open = 0;
  for (const place of places) {
    out += text.slice(open, place) + mark;
    open = place;
  }
  return out + text.slice(open);
}

/** Ascending, each once. */
export function ascending(places: readonly number[]): number[] {
  return [...new Set(places)].sort((a, b) => a - b);
}

function afterFirstCharacter(text: string, at: number): number {
  return at + ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);
}
