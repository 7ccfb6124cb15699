/**
 * When a parked controller (cap 0) tries one draft again. Waiting is set by what a probe loses, so that probing costs
 * about one percent; after an accepted probe the next one follows at once, so that a change of content is found within
 * one wait. (The reference probes every 8th round: where drafting is dear, that alone costs up to 6 %.)
 */

/** Tests put the reference's fixed cadence in its place. */
export interface ProbePlan {
  /** Least weight of a probe's outcome in the acceptance estimate. */
  readonly alpha: number;
  /** True: every probe's outcome is acted on, else only every fourth round. */
  readonly decidesAtOnce: boolean;
  /** Called when parked, after round number `round`. */
  enter(round: number, loss: number): void;
  /** After the probe that was round number `round`. `loss`: plain steps that a probe is expected to cost in vain. */
  probed(round: number, accepted: boolean, loss: number): void;
  /** Plain steps to run after round number `round` before the next probe. */
  wait(round: number): number;
}

const BUDGET = 0.01;
const WAIT_MIN = 8;
const WAIT_MAX = 48;

export class BudgetedProbes implements ProbePlan {
  readonly alpha = 0.2;
  readonly decidesAtOnce = true;
  private due = 0;

  enter(round: number, loss: number): void {
    this.due = round + waitFor(loss);
  }

  probed(round: number, accepted: boolean, loss: number): void {
    this.due = accepted ? round : round + waitFor(loss);
  }

  wait(round: number): number {
    return Math.max(0, this.due - round);
  }
}

function waitFor(loss: number): number {
  return Math.min(WAIT_MAX, Math.max(WAIT_MIN, Math.ceil(loss / BUDGET)));
}
