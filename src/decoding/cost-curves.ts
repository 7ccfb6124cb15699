/**
 * From measured cost curves to the length of drafts (calibration.md §6): what a round with C drafts costs, what it is
 * expected to commit, and the C with the most tokens per millisecond. Prices come from the isotonic fit of the raw
 * curves. Nothing here changes the output of a request, only its speed.
 */
import { type Curve, curveOf, interpolate, isotonic, kneeWidth } from "./curve.ts";

/** Measured costs in ms. Record keys are integers. */
export interface MeasuredCosts {
  /** One verify forward of `key` rows at depth `depth0`. */
  readonly verify: Readonly<Record<string, number>>;
  /** One draft round that reads `key` positions, or a constant. */
  readonly drafter: Readonly<Record<string, number>> | number;
  /** Per round, in neither curve. */
  readonly overhead?: number;
  /** One plain step as the loop runs it; without it a verify of one row stands for it. */
  readonly plain?: number;
  /** Extra ms of a verify of `key` rows for each token of context. */
  readonly depthSlope?: Readonly<Record<string, number>> | null;
  readonly depth0?: number;
}

/** Acceptance assumed where none is measured: the reference's, checked against its published optima (calibration.md §6). */
export const ASSUMED_ACCEPTANCE = 0.7;
/** What a verify costs at least without context, as a share of its cost at `depth0`: a limit to a badly measured slope. */
const FLAT_SHARE_MIN = 0.25;
/** Below this share of the verify cost, depth does not change the cap. */
const DEPTH_SHARE_MIN = 0.15;
const MS_FLOOR = 1e-6;

export class CostCurves {
  readonly depth0: number;
  private readonly verify: Curve;
  private readonly drafter: Curve;
  private readonly overhead: number;
  private readonly plain: number | null;
  private readonly slope: Curve | null;
  private readonly rawVerify: Curve;
  /** Prices at `depth0` by cap: asked for several times a round. */
  private readonly flatRounds = new Map<number, number>();

  /** @throws RangeError when a curve has no points */
  constructor(readonly costs: MeasuredCosts) {
    this.rawVerify = curveOf(costs.verify);
    this.verify = isotonic(this.rawVerify);
    this.drafter = isotonic(curveOf(typeof costs.drafter === "number" ? { 1: costs.drafter } : costs.drafter));
    this.overhead = costs.overhead ?? 0;
    this.plain = costs.plain ?? null;
    this.slope = costs.depthSlope ? curveOf(costs.depthSlope) : null;
    this.depth0 = costs.depth0 ?? 512;
  }

  /**
   * ms that `width` rows cost more at `depth` than at `depth0`, less when it is smaller (ours: a small model on a CPU
   * spends a third of a step on 512 tokens of context).
   */
  depthMs(width: number, depth: number): number {
    if (this.slope === null) return 0;
    const ms = interpolate(this.slope, width) * (depth - this.depth0);
    return ms >= 0 ? ms : Math.max(ms, (FLAT_SHARE_MIN - 1) * interpolate(this.verify, width));
  }

  /** ms of a verify forward of `width` rows. */
  verifyMs(width: number, depth = this.depth0): number {
    return interpolate(this.verify, width) + this.depthMs(width, depth);
  }

  /** ms of drafting `count` tokens; 0 for none. */
  draftMs(count: number): number {
    return count === 0 ? 0 : interpolate(this.drafter, count);
  }

  /**
   * ms of one draft beside a plain step. Between steps its weights leave the near caches, in which the drafter's curve is
   * measured: the overhead of a round, where that happens too, holds the difference.
   */
  get guessMs(): number {
    return this.draftMs(1) + this.overhead;
  }

  /** ms of a round with `cap` drafts of the drafter; 0: a plain step. */
  roundMs(cap: number, depth = this.depth0): number {
    let flat = this.flatRounds.get(cap);
    if (flat === undefined) {
      flat =
        cap === 0
          ? (this.plain ?? interpolate(this.verify, 1))
          : this.draftMs(cap) + interpolate(this.verify, cap + 1) + this.overhead;
      this.flatRounds.set(cap, flat);
    }
    return Math.max(flat + this.depthMs(cap + 1, depth), MS_FLOOR);
  }

  /** ms of one forward of `rows` rows in all with the longest draft `longest`, the overhead included: for batches. */
  batchMs(rows: number, longest: number): number {
    const overhead = longest === 0 ? 0 : this.overhead;
    return Math.max(interpolate(this.verify, rows) + this.draftMs(longest) + overhead, MS_FLOOR);
  }

  /** Tokens per ms of rounds with `cap` drafts, each accepted with probability `acceptance` after its predecessors. */
  rate(cap: number, acceptance: number, depth = this.depth0): number {
    return expectedCommitted(cap, acceptance) / this.roundMs(cap, depth);
  }

  /** The best cap of [1, maxCap]; the smaller one on a tie. */
  bestCap(maxCap: number, acceptance = ASSUMED_ACCEPTANCE, depth = this.depth0): number {
    let best = 1;
    for (let cap = 2; cap <= maxCap; cap++) {
      if (this.rate(cap, acceptance, depth) > this.rate(best, acceptance, depth)) best = cap;
    }
    return best;
  }

  /** A derived cap for a request of `depth` prompt tokens: it only ever shrinks, and only when depth matters. */
  depthAdjustedCap(depth: number, cap: number, acceptance = ASSUMED_ACCEPTANCE): number {
    const extra = this.depthMs(cap + 1, depth);
    if (extra < DEPTH_SHARE_MIN * interpolate(this.verify, cap + 1)) return cap;
    return Math.min(cap, this.bestCap(cap, acceptance, depth));
  }

  /** ms of a round with `drafts` drafts by lookup, which cost nothing themselves. */
  lookupMs(drafts: number, depth = this.depth0): number {
    return Math.max(this.verifyMs(drafts + 1, depth) + this.overhead, MS_FLOOR);
  }

  /** For reports. */
  get knee(): number {
    return kneeWidth(this.rawVerify);
  }
}

/** Expected tokens that a round with `cap` drafts commits. */
export function expectedCommitted(cap: number, acceptance: number): number {
  let expected = 1;
  let survival = 1;
  for (let i = 0; i < cap; i++) {
    survival *= acceptance;
    expected += survival;
  }
  return expected;
}
