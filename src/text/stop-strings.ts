/**
 * Stop strings over a stream of text. Invariant: what is given out is never part of a match, and only what can still
 * become one is held back. The match is that of a search in the whole text: the earliest start wins, and of those the
 * shortest, so the answer does not depend on how the text was cut into pieces.
 */

export interface StopResult {
  /** Text that is certainly before any stop string. */
  readonly text: string;
  /** The stop string found; null while there is none. */
  readonly matched: string | null;
  /**
   * Which `push` (0, 1, …) brought the last character of the match; null while there is none. With one push per token
   * this is the token that completed the stop string, even if the match was certain only later.
   */
  readonly completedBy: number | null;
}

export class StopMatcher {
  readonly #stops: readonly string[];
  #held = "";
  #pushes = 0;
  /** For each push whose text is still held: its number and how much of `#held` ends with it. */
  #ends: { push: number; end: number }[] = [];
  #matched: string | null = null;
  #completedBy: number | null = null;

  /** @param stops strings to stop at; empty ones must have been refused before (they would match at once). */
  constructor(stops: readonly string[]) {
    this.#stops = stops.map((stop) => stop.toWellFormed()).filter((stop) => stop.length > 0);
  }

  get matched(): string | null {
    return this.#matched;
  }

  /** There is nothing to stop at. */
  get isInert(): boolean {
    return this.#stops.length === 0;
  }

  get completedBy(): number | null {
    return this.#completedBy;
  }

  /** Takes the next piece of text, possibly empty. After a match nothing more is given out. */
  push(text: string): StopResult {
    const push = this.#pushes++;
    if (this.#matched !== null || text.length === 0) return this.#result("");
    if (this.#stops.length === 0) return this.#result(text);
    this.#held += text;
    this.#ends.push({ push, end: this.#held.length });
    return this.#result(this.#advance(false));
  }

  /**
   * The text is over: gives out what was held back. A match that had waited for an earlier, longer one is decided
   * here: read `matched` and `completedBy` afterwards.
   */
  flush(): string {
    return this.#matched === null ? this.#advance(true) : "";
  }

  /** Gives out everything before the first place where a stop string stands or (unless `ended`) may still come. */
  #advance(ended: boolean): string {
    const held = this.#held;
    let at = 0;
    for (; at < held.length; at++) {
      const found = this.#completeAt(at);
      if (found !== null) {
        this.#matched = found;
        this.#completedBy = this.#pushOf(at + found.length);
        this.#held = "";
        this.#ends = [];
        return held.slice(0, at);
      }
      if (!ended && this.#liveAt(at)) break;
    }
    this.#held = held.slice(at);
    this.#ends = this.#ends
      .filter((entry) => entry.end > at)
      .map((entry) => ({ push: entry.push, end: entry.end - at }));
    return held.slice(0, at);
  }

  #completeAt(at: number): string | null {
    let shortest: string | null = null;
    for (const stop of this.#stops) {
      if ((shortest === null || stop.length < shortest.length) && this.#held.startsWith(stop, at)) shortest = stop;
    }
    return shortest;
  }

  /** The rest of the text, from `at` on, is the beginning of a stop string. */
  #liveAt(at: number): boolean {
    const rest = this.#held.length - at;
    return this.#stops.some((stop) => stop.length > rest && this.#held.endsWith(stop.slice(0, rest)));
  }

  #pushOf(end: number): number | null {
    return this.#ends.find((entry) => entry.end >= end)?.push ?? null;
  }

  #result(text: string): StopResult {
    return { text, matched: this.#matched, completedBy: this.#completedBy };
  }
}
