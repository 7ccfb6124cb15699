/**
 * Prompt lookup: drafts taken from where the last few tokens stood before in prompt and completion (decoding.md §6; Saxena,
 * Prompt Lookup Decoding, 2023). Longer n-grams win over shorter ones, later places over earlier ones. A proposal only
 * costs time when it is wrong: the target verifies it.
 */
import { NgramTable } from "./ngram-table.ts";

export interface LookupOptions {
  readonly minN: number;
  readonly maxN: number;
  /** Longest base draft. */
  readonly maxDraft: number;
  /**
   * When the match runs into the end of the text, draft on from the draft itself, as repetition would. False only to
   * compare with traces of the Python mlx-dspark, which stops there.
   */
  readonly selfExtension?: boolean;
}

export interface LookupProposal {
  readonly tokens: Int32Array;
  /** Tokens before the end of the text that equal those before the copied place, up to the limit of the search. */
  readonly matched: number;
}

/** n-gram lengths for `lookup` mode, and beside a drafter where nothing says when a spurious trigram replaces a better draft. */
export const LOOKUP_ALONE = { minN: 3, maxN: 4, maxDraft: 6 } as const satisfies LookupOptions;
export const LOOKUP_BESIDE_DRAFTER = { minN: 4, maxN: 5, maxDraft: 6 } as const satisfies LookupOptions;
/** `--lookup-long-draft`. */
export const LONG_DRAFT = 32;

/** A match of this length allows a draft of twice itself. */
const LONG_MATCH = 8;
/** Matches are followed back this far even when no long draft is wanted: their length tells how far to trust them. */
const MATCH_SEEN = 16;

export class LookupIndex {
  private tokens: Int32Array;
  private length = 0;
  /** Longest n-grams first. */
  private readonly tables: readonly NgramTable[];
  /** Of what is one token short of an n-gram; null: a single token would always be one. */
  private readonly shorter: NgramTable | null;

  constructor(
    private readonly options: LookupOptions,
    initial: ArrayLike<number> = [],
  ) {
    const { minN, maxN } = options;
    if (minN < 1 || maxN < minN) throw new RangeError(`n-grams of ${minN} to ${maxN} tokens: give 1 ≤ minN ≤ maxN`);
    this.tables = Array.from({ length: maxN - minN + 1 }, (_, i) => new NgramTable(maxN - i));
    this.shorter = minN > 1 ? new NgramTable(minN - 1) : null;
    this.tokens = new Int32Array(initial.length + 1024);
    this.extend(initial);
  }

  /** Appends committed tokens. The whole prompt belongs here, also the part that a prefix cache served. */
  extend(ids: ArrayLike<number>): void {
    const end = this.length + ids.length;
    if (end > this.tokens.length) {
      const larger = new Int32Array(end * 2);
      larger.set(this.tokens);
      this.tokens = larger;
    }
    this.tokens.set(ids, this.length);
    while (this.length < end) {
      this.length++;
      for (const table of this.tables) if (this.length >= table.n) table.add(this.tokens, this.length);
      const { shorter } = this;
      if (shorter !== null && this.length >= shorter.n) shorter.add(this.tokens, this.length);
    }
  }

  /** The token that would make a proposal of the next text, where the last tokens stood before; null: they never did. */
  expected(): number | null {
    const { shorter, length } = this;
    if (shorter === null || length <= shorter.n) return null;
    const place = shorter.before(this.tokens, length);
    return place === 0 ? null : (this.tokens[place] as number);
  }

  /**
   * What followed the last tokens when they last stood in the text; null when they never did.
   * @param longDraft limit of a draft that a long match allows; null or not above `maxDraft`: base drafts only
   * @param limit most tokens wanted, ≥ 1
   */
  propose(longDraft: number | null = null, limit = Number.POSITIVE_INFINITY): LookupProposal | null {
    if (limit < 1) return null;
    const end = this.length;
    for (const table of this.tables) {
      if (end <= table.n) continue;
      const place = table.before(this.tokens, end);
      if (place === 0) continue;
      const { maxDraft } = this.options;
      const long = longDraft !== null && longDraft > maxDraft ? longDraft : null;
      const matched = this.matchLength(place, table.n, Math.max(long ?? 0, MATCH_SEEN));
      const cap = long !== null && matched >= LONG_MATCH ? Math.min(long, 2 * Math.min(matched, long)) : maxDraft;
      const tokens = this.copyFrom(place, Math.min(cap, limit));
      return { tokens, matched };
    }
    return null;
  }

  /** How many tokens before `place` equal those before the end of the text, `known` of which do. */
  private matchLength(place: number, known: number, most: number): number {
    let matched = known;
    while (
      matched < most &&
      place - matched > 0 &&
      this.tokens[place - matched - 1] === this.tokens[this.length - matched - 1]
    ) {
      matched++;
    }
    return matched;
  }

  private copyFrom(place: number, count: number): Int32Array {
    const there = this.length - place;
    if (count <= there || this.options.selfExtension === false) {
      return this.tokens.slice(place, Math.min(place + count, this.length));
    }
    const draft = new Int32Array(count);
    draft.set(this.tokens.subarray(place, this.length));
    for (let i = there; i < count; i++) draft[i] = draft[i - there] as number;
    return draft;
  }
}
