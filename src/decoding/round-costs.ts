/**
 * What rounds cost here and now: the calibrated curves, corrected by the rounds that were timed. Times are kept as ms of
 * a round without its depth term, not as ms per token: a round's time is steady while its yield is chance, so that a few
 * rounds tell it, and acceptance learnt at one cap counts for all.
 */
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
const CORRECTION_ALPHA = 0.05;
const CORRECTION_MIN = 0.25;
const CORRECTION_MAX = 4;
/** Rounds before a measured time replaces the corrected prediction. */
const TRUSTED_AFTER = 4;
/** Rounds of other caps after which a measured time is forgotten. */
const STALE_AFTER = 32;
/** A single round is believed to be at most so many times slower or faster than the ones before: pauses are no costs. */
const OUTLIER = 2;

interface Timed {
  ms: number;
  count: number;
  age: number;
}

/** Measured over predicted cost, as a mean that becomes a moving one. */
class Correction {
  value = 1;
  private count = 0;

  get known(): boolean {
    return this.count >= TRUSTED_AFTER;
  }

  learn(ratio: number): void {
    this.count++;
    const believed = clamp(ratio, this.value / OUTLIER, this.value * OUTLIER);
    const next = this.value + Math.max(CORRECTION_ALPHA, 1 / (this.count + 1)) * (believed - this.value);
    this.value = clamp(next, CORRECTION_MIN, CORRECTION_MAX);
  }
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
      const believed = entry.count > TRUSTED_AFTER ? clamp(flat, entry.ms / OUTLIER, entry.ms * OUTLIER) : flat;
      entry.ms += Math.max(TIME_ALPHA, 1 / entry.count) * (believed - entry.ms);
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
        : this.curves.roundMs(cap) * (cap === 0 && this.plain.known ? this.plain : this.drafts).value;
    return flat + this.curves.depthMs(cap + 1, depth);
  }

  efficiency(cap: number, acceptance: number, depth: number): number {
    return expectedCommitted(cap, acceptance) / this.roundMs(cap, depth);
  }
}

function clamp(x: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, x));
}
