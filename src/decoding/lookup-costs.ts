/**
 * What a lookup draft costs here and now, and what a plain step does: the calibrated curves, corrected by the rounds of
 * one row that were timed. The machine is seldom as it was when it was calibrated, and not equally so for one row, which
 * waits for the memory, and for many, which compute; and the lengths that look best are those that were measured as too
 * cheap.
 */
import { Correction } from "./correction.ts";
import type { CostCurves } from "./cost-curves.ts";

/** Rounds of one length before they are believed rather than those of all lengths. */
const TRUSTED_AFTER = 4;
/** Rounds of other lengths after which those of one are forgotten: what was found too dear once is tried again. */
const STALE_AFTER = 32;

interface Timed {
  readonly correction: Correction;
  /** Number of the newest round. */
  at: number;
}

export class LookupCosts {
  private readonly plain = new Correction();
  private readonly drafts = new Correction();
  private readonly byLength = new Map<number, Timed>();
  private rounds = 0;

  constructor(private readonly curves: CostCurves) {}

  /** After a round of `drafts` ≥ 1 drafts at a context of `depth` that took `ms`. */
  learnDraft(drafts: number, ms: number, depth: number): void {
    const ratio = ms / this.curves.lookupMs(drafts, depth);
    this.drafts.learn(ratio);
    this.rounds++;
    const own = this.timed(drafts) ?? { correction: new Correction(), at: this.rounds };
    this.byLength.set(drafts, own);
    own.correction.learn(ratio);
    own.at = this.rounds;
  }

  /** After a plain step. */
  learnPlain(ms: number, depth: number): void {
    this.plain.learn(ms / this.curves.roundMs(0, depth));
  }

  /** ms of a round that verifies `drafts` ≥ 1 drafts. */
  draftMs(drafts: number, depth: number): number {
    const own = this.timed(drafts)?.correction;
    const { value } = own !== undefined && own.count >= TRUSTED_AFTER ? own : this.drafts;
    return value * this.curves.lookupMs(drafts, depth);
  }

  /** ms of a plain step. */
  plainMs(depth: number): number {
    return this.plain.value * this.curves.roundMs(0, depth);
  }

  private timed(drafts: number): Timed | null {
    const own = this.byLength.get(drafts);
    return own !== undefined && this.rounds - own.at <= STALE_AFTER ? own : null;
  }
}
