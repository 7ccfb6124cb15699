/**
 * The cap controller's two replaceable parts as the Python mlx-dspark has them (calibration.md §7), so that its traces
 * can be replayed on the shared rest: times per token, and a fixed cadence of probes.
 */
import type { CostCurves } from "../../src/decoding/cost-curves.ts";
import type { ProbePlan } from "../../src/decoding/probe-plan.ts";
import type { RoundPricing } from "../../src/decoding/round-costs.ts";

export class ReferencePricing implements RoundPricing {
  correction = 1;
  private readonly timed = new Map<number, { msPerToken: number; count: number }>();
  private readonly ages = new Map<number, number>();

  constructor(private readonly curves: CostCurves) {}

  learn(cap: number, ms: number, committed: number, acceptance: number, depth: number): void {
    const msPerToken = ms / committed;
    const entry = this.timed.get(cap);
    if (entry === undefined) {
      this.timed.set(cap, { msPerToken, count: 1 });
    } else {
      entry.msPerToken += 0.1 * (msPerToken - entry.msPerToken);
      entry.count++;
    }
    this.ages.set(cap, 0);
    if (cap >= 1) {
      this.correction += 0.05 * (1 / msPerToken / this.curves.rate(cap, acceptance, depth) - this.correction);
    }
  }

  learnBatch(): void {
    throw new Error("the traces have no batches");
  }

  age(cap: number): void {
    for (const [other, age] of this.ages) {
      if (other === cap) continue;
      this.ages.set(other, age + 1);
      if (age + 1 > 32) {
        this.ages.delete(other);
        this.timed.delete(other);
      }
    }
  }

  efficiency(cap: number, acceptance: number, depth: number): number {
    const entry = this.timed.get(cap);
    if (entry !== undefined && entry.count >= 4) return 1 / entry.msPerToken;
    return this.curves.rate(cap, acceptance, depth) * (cap >= 1 ? this.correction : 1);
  }
}

export class FixedProbes implements ProbePlan {
  readonly alpha = 0.02;
  readonly decidesAtOnce = false;

  enter(): void {
    // The cadence is that of the round counter alone.
  }

  probed(): void {
    // As above.
  }

  wait(round: number): number {
    return (8 - (round % 8)) % 8;
  }
}
