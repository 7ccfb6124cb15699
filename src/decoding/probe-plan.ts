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
  /**
   * After the probe that was round number `round`. `loss`: plain steps that a probe is expected to cost in vain;
   * `guessed`: it was a guess beside a plain step.
   */
  probed(round: number, accepted: boolean, loss: number, guessed: boolean): void;
  /** Plain steps to run after round number `round` before the next probe. */
  wait(round: number): number;
}

const BUDGET = 0.01;
const WAIT_MIN = 8;
const WAIT_MAX = 48;
/** A guess beside a plain step also brings the context of all steps since the last one up to date: it may be rarer. */
const GUESS_WAIT_MAX = 64;
/** What that costs, in prices of the guess itself. */
const GUESS_CONTEXT = 0.5;

export class BudgetedProbes implements ProbePlan {
  readonly alpha = 0.2;
  readonly decidesAtOnce = true;
  private due = 0;

  enter(round: number, loss: number): void {
    this.due = round + waitFor(loss);
  }

  probed(round: number, accepted: boolean, loss: number, guessed = false): void {
    const wait = guessed ? waitFor((1 + GUESS_CONTEXT) * loss, GUESS_WAIT_MAX) : waitFor(loss);
    this.due = accepted ? round : round + wait;
  }

  wait(round: number): number {
    return Math.max(0, this.due - round);
  }
}

function waitFor(loss: number, most = WAIT_MAX): number {
  return Math.min(most, Math.max(WAIT_MIN, Math.ceil(loss / BUDGET)));
}
