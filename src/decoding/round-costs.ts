/**
 * What rounds cost here and now: the calibrated curves, corrected by the rounds that were timed. Times are kept as ms of
 * a round without its depth term, not as ms per token: a round's time is steady while its yield is chance, so that a few
 * rounds tell it, and acceptance learnt at one cap counts for all.
 */
import { believed, Correction } from "./correction.ts";
import { type CostCurves, expectedCommitted } from "./cost-curves.ts";

/** How a controller prices caps; tests put the reference's own way in its place. */
export interface RoundPricing {
  /** A timed round of one row with `cap` drafts that committed ≥ 1 token, at a context of `depth`. */
  learn(cap: number, ms: number, committed: number, acceptance: number, depth: number): void;
  /** A timed round of several rows. */
  learnBatch(rows: number, longest: number, ms: number): void;
  /** After every round: what other caps cost is one round older. */
  age(cap: number): void;
  /** Tokens per ms at `cap`. */
  efficiency(cap: number, acceptance: number, depth: number): number;
  /** Measured over predicted cost, for reports. */
  readonly correction: number;
}

const TIME_ALPHA = 0.1;
/** Rounds before a measured time replaces the corrected prediction. */
const TRUSTED_AFTER = 4;
/** Rounds of other caps after which a measured time is forgotten. */
const STALE_AFTER = 32;

interface Timed {
  ms: number;
  count: number;
  age: number;
}

export class RoundCosts implements RoundPricing {
  private readonly drafts = new Correction();
  /** Of plain steps: what they cost is asked for all the time and seen seldom. */
  private readonly plain = new Correction();
  private readonly timed = new Map<number, Timed>();

  constructor(private readonly curves: CostCurves) {}

  get correction(): number {
    return this.drafts.value;
  }

  learn(cap: number, ms: number, _committed: number, _acceptance: number, depth: number): void {
    const flat = ms - this.curves.depthMs(cap + 1, depth);
    const entry = this.timed.get(cap);
    if (entry === undefined) {
      this.timed.set(cap, { ms: flat, count: 1, age: 0 });
    } else {
      entry.count++;
      entry.age = 0;
      const ms = entry.count > TRUSTED_AFTER ? believed(flat, entry.ms) : flat;
      entry.ms += Math.max(TIME_ALPHA, 1 / entry.count) * (ms - entry.ms);
    }
    (cap >= 1 ? this.drafts : this.plain).learn(flat / this.curves.roundMs(cap));
  }

  learnBatch(rows: number, longest: number, ms: number): void {
    this.drafts.learn(ms / this.curves.batchMs(rows, longest));
  }

  age(cap: number): void {
    for (const [other, entry] of this.timed) {
      if (other !== cap && ++entry.age > STALE_AFTER) this.timed.delete(other);
    }
  }

  /** ms of a round with `cap` drafts at `depth`. */
  roundMs(cap: number, depth: number): number {
    const entry = this.timed.get(cap);
    const flat =
      entry !== undefined && entry.count >= TRUSTED_AFTER
        ? entry.ms
        : this.curves.roundMs(cap) * (cap === 0 && this.plain.count >= TRUSTED_AFTER ? this.plain : this.drafts).value;
    return flat + this.curves.depthMs(cap + 1, depth);
  }

  efficiency(cap: number, acceptance: number, depth: number): number {
    return expectedCommitted(cap, acceptance) / this.roundMs(cap, depth);
  }
}
