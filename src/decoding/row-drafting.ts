/** What a row keeps in order to draft: the index over its own text, what it learnt of it, and its drafter's context. */
import type { DrafterSession } from "../drafters/drafter.ts";
import { LongDraftGate } from "./lookup-gate.ts";
import type { LookupIndex } from "./lookup-index.ts";
import { LookupTrust } from "./lookup-trust.ts";

/** Weight of one more expected token that came or did not. */
const EXPECTED_ALPHA = 0.1;

export class RowDrafting {
  readonly long = new LongDraftGate();
  readonly trust = new LookupTrust();
  /** Length of the lookup draft that was let through and has not been verified yet; 0: none. */
  admitted = 0;
  /** True while a step with a watched draft is in flight. */
  watching = false;
  /** How often the token came that the index expected; at first a guess, soon outweighed. */
  expectedComes = 0.3;
  private expected: number | null;

  constructor(
    readonly lookup: LookupIndex | null,
    readonly session: DrafterSession | null,
  ) {
    this.expected = lookup?.expected() ?? null;
  }

  /** Whether the index knows a token that would make a proposal if it came next. */
  get expects(): boolean {
    return this.expected !== null;
  }

  /** Committed tokens, in order. */
  extend(ids: ArrayLike<number>): void {
    if (this.lookup === null || ids.length === 0) return;
    if (this.expected !== null) {
      this.expectedComes += EXPECTED_ALPHA * ((ids[0] === this.expected ? 1 : 0) - this.expectedComes);
    }
    this.lookup.extend(ids);
    this.expected = this.lookup.expected();
  }
}
