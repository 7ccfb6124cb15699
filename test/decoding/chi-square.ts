/** Pearson's test of counts against exact probabilities. */

/** Cells expected to hold fewer are pooled: the test's approximation needs some counts in each. */
const EXPECTED_MIN = 10;

export interface Fit {
  /** Standard normal deviate of the statistic (Wilson and Hilferty 1931): above 5 by chance once in three million. */
  readonly z: number;
  /** Draws of what has probability zero. */
  readonly impossible: number;
}

export function chiSquare(counts: ArrayLike<number>, probabilities: ArrayLike<number>): Fit {
  const total = Array.from(counts).reduce((sum, x) => sum + x, 0);
  let statistic = 0;
  let cells = 0;
  let impossible = 0;
  let pooledCount = 0;
  let pooledExpected = 0;
  const add = (count: number, expected: number) => {
    statistic += (count - expected) ** 2 / expected;
    cells++;
  };
  for (let i = 0; i < counts.length; i++) {
    const count = counts[i] as number;
    const expected = total * (probabilities[i] as number);
    if (expected === 0) {
      impossible += count;
    } else if (expected < EXPECTED_MIN) {
      pooledCount += count;
      pooledExpected += expected;
    } else {
      add(count, expected);
    }
  }
  if (pooledExpected > 0) add(pooledCount, pooledExpected);
  const freedom = cells - 1;
  if (freedom < 1) throw new Error("a law of one outcome tests nothing");
  const spread = 2 / (9 * freedom);
  return { z: (Math.cbrt(statistic / freedom) - (1 - spread)) / Math.sqrt(spread), impossible };
}
