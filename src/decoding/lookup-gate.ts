/**
 * When a lookup draft is worth its rows (decoding.md §6). Both gates belong to one request and change only the length and
 * source of drafts, never the output.
 */

const LONG_FAILS_MAX = 2;
const LONG_REST_ROUNDS = 8;

/** Long drafts: after two that were mostly wrong, none for eight lookup rounds. */
export class LongDraftGate {
  /** Long drafts in a row of which less than half was accepted. */
  fails = 0;
  /** Lookup rounds since the last long draft. */
  roundsSince = 0;

  get allowed(): boolean {
    return this.fails < LONG_FAILS_MAX || this.roundsSince >= LONG_REST_ROUNDS;
  }

  /** After every lookup round. `base`: longest draft that does not count as long. */
  update(drafted: number, accepted: number, base: number): void {
    if (drafted <= base) {
      this.roundsSince++;
      return;
    }
    this.fails = 2 * accepted < drafted ? this.fails + 1 : 0;
    this.roundsSince = 0;
  }
}

const DRAFTS_BEFORE_JUDGING = 8;
const ACCEPTANCE_ALPHA = 0.25;
const REFUSALS_BEFORE_PROBE = 8;

/**
 * Base drafts: refused while their smoothed accepted length is below what they must bring. Every eighth chance is a
 * probe, so that a text that begins to repeat itself is found.
 */
export class BaseDraftGate {
  /** Smoothed accepted tokens per draft. */
  accepted = 0;
  private drafts = 0;
  private refusals = 0;

  /**
   * Asked once for each proposal at hand.
   * @param needed accepted tokens at which the draft breaks even with what would be done instead: the drafter's expected
   *   accepted length, or `CostCurves.breakEvenAccepted`; 0 always allows
   */
  allows(needed: number): boolean {
    const good = this.drafts < DRAFTS_BEFORE_JUDGING || this.accepted >= needed;
    if (good || this.refusals >= REFUSALS_BEFORE_PROBE - 1) {
      this.refusals = 0;
      return true;
    }
    this.refusals++;
    return false;
  }

  /** After every lookup round. */
  update(accepted: number): void {
    this.drafts++;
    // The plain mean until the smoothing has as many observations as it weighs.
    this.accepted += Math.max(ACCEPTANCE_ALPHA, 1 / this.drafts) * (accepted - this.accepted);
  }
}
