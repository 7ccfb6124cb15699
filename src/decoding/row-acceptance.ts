/** How often one row's drafts are accepted, leaning on the engine's estimate until the row has spoken for itself. */

/** Observations that the engine's estimate counts as (calibration.md §7). */
const PRIOR_WEIGHT = 16;
/** Outcomes after which older ones count half: content changes within a request. */
const MEMORY = 64;
/** Steps without drafts after which one draft is tried. */
const PROBE_EVERY = 8;

export class RowAcceptance {
  private trials = 0;
  private successes = 0;
  private idle = 0;

  /** After each step of the row: drafts verified and accepted. Lookup drafts are not reported. */
  update(drafted: number, accepted: number): void {
    this.idle = drafted === 0 ? this.idle + 1 : 0;
    this.trials += accepted < drafted ? accepted + 1 : accepted;
    this.successes += accepted;
    if (this.trials > MEMORY) {
      this.trials /= 2;
      this.successes /= 2;
    }
  }

  /** True when the row went without drafts for so long that one is to be tried. */
  get probeDue(): boolean {
    return this.idle >= PROBE_EVERY - 1;
  }

  /** Probability that a draft is accepted after its predecessors. `prior`: the engine's estimate. */
  estimate(prior: number): number {
    return (PRIOR_WEIGHT * prior + this.successes) / (PRIOR_WEIGHT + this.trials);
  }

  /** Probability that draft i and all before it are accepted, for i = 1 … most. */
  survival(prior: number, most: number): number[] {
    const p = this.estimate(prior);
    return Array.from({ length: most }, (_, i) => p ** (i + 1));
  }
}
