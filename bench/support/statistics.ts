/** Order statistics of a few dozen measurements: a shared machine has outliers, so no means. */

export interface Spread {
  readonly p10: number;
  readonly median: number;
  readonly p90: number;
}

/** Quantile with linear interpolation between neighbours. `q` in [0, 1]; `values` not empty. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = q * (sorted.length - 1);
  const low = Math.floor(at);
  const [left, right] = [sorted[low], sorted[Math.min(low + 1, sorted.length - 1)]];
  if (left === undefined || right === undefined) throw new RangeError("a quantile of no values");
  return left + (at - low) * (right - left);
}

export function spread(values: readonly number[]): Spread {
  return { p10: quantile(values, 0.1), median: quantile(values, 0.5), p90: quantile(values, 0.9) };
}
