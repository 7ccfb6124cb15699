/** A measured cost over an integer axis (rows, drafts): milliseconds at a few keys, linear between them. */

/** Ascending keys, at least one. */
export interface Curve {
  readonly keys: readonly number[];
  readonly values: readonly number[];
}

/** Points in any order; keys from JSON may be strings. @throws RangeError when there is none, or one is not a number */
export function curveOf(points: Readonly<Record<string, number>> | ReadonlyMap<number, number>): Curve {
  const entries = points instanceof Map ? [...points] : Object.entries(points).map(([k, v]) => [Number(k), v] as const);
  if (entries.length === 0 || entries.some(([k, v]) => !Number.isFinite(k) || !Number.isFinite(v))) {
    throw new RangeError("a cost curve needs at least one point, and numbers only");
  }
  entries.sort((a, b) => a[0] - b[0]);
  return { keys: entries.map(([k]) => k), values: entries.map(([, v]) => v) };
}

/** Below the first key its value; above the last one the last segment goes on. */
export function interpolate({ keys, values }: Curve, x: number): number {
  const last = keys.length - 1;
  const at = (i: number) => [keys[i] as number, values[i] as number] as const;
  if (last === 0 || x <= (keys[0] as number)) return values[0] as number;
  let right = keys.findIndex((key) => x <= key);
  if (right === -1) right = last;
  const [x0, y0] = at(right - 1);
  const [x1, y1] = at(right);
  return x === x1 ? y1 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

/**
 * The nearest curve (least squares) that never falls: noise must not make more work look cheaper. Pool adjacent
 * violators (Ayer et al. 1955).
 */
export function isotonic(curve: Curve): Curve {
  const pools: { sum: number; count: number }[] = [];
  for (const value of curve.values) {
    let pool = { sum: value, count: 1 };
    for (let before = pools.at(-1); before !== undefined; before = pools.at(-1)) {
      if (before.sum / before.count <= pool.sum / pool.count) break;
      pools.pop();
      pool = { sum: before.sum + pool.sum, count: before.count + pool.count };
    }
    pools.push(pool);
  }
  return { keys: curve.keys, values: pools.flatMap(({ sum, count }) => Array<number>(count).fill(sum / count)) };
}

const KNEE_RISE = 1.8;
const KNEE_FLOOR = 0.15;

/** The width whose step leaves the cheap region: for reports only. The last key when there is none. */
export function kneeWidth({ keys, values }: Curve): number {
  const last = keys.at(-1) as number;
  if (keys.length < 3) return last;
  const steps = values.slice(1).map((value, i) => value - (values[i] as number));
  const floor = KNEE_FLOOR * (values[0] as number);
  const mean = (list: readonly number[]) => list.reduce((sum, x) => sum + x, 0) / list.length;
  const [first = 0, ...rest] = steps;
  // A cliff at the first step, flat behind it: weights that are read twice from two rows on.
  if (first > Math.max(KNEE_RISE * mean(rest), floor)) return keys[1] as number;
  const knee = steps.findIndex((step, i) => i > 0 && step > Math.max(KNEE_RISE * mean(steps.slice(0, i)), floor));
  return knee === -1 ? last : (keys[knee + 1] as number);
}
