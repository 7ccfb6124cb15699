/** How far calibrated costs are off here and now. */

const ALPHA = 0.05;
const MIN = 0.25;
const MAX = 4;
/** A single round is believed to be at most so many times slower or faster than the ones before: pauses are no costs. */
const OUTLIER = 2;

/** Measured over predicted cost, as a mean that becomes a moving one. */
export class Correction {
  value = 1;
  /** Measurements that it rests on. */
  count = 0;

  learn(ratio: number): void {
    this.count++;
    const next = this.value + Math.max(ALPHA, 1 / (this.count + 1)) * (believed(ratio, this.value) - this.value);
    this.value = clamp(next, MIN, MAX);
  }
}

/** A measurement, brought near to what was measured before. */
export function believed(measured: number, before: number): number {
  return clamp(measured, before / OUTLIER, before * OUTLIER);
}

function clamp(x: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, x));
}
