/**
 * A paired comparison: the sides measure in strict turns, in an order that is reversed every round, so that a slow spell
 * of the machine hits all of them. Ratios and differences are taken within a round and only then summed up.
 */
import type { Contender, Sample } from "./contender.ts";
import { type Spread, spread } from "./statistics.ts";

export type Rounds = readonly Readonly<Record<string, Sample>>[];

/** `warmup` rounds are run and forgotten. The contenders are stopped at the end, whatever happens. */
export async function alternate(
  sides: readonly Contender[],
  { rounds, warmup }: { readonly rounds: number; readonly warmup: number },
): Promise<Rounds> {
  const kept: Record<string, Sample>[] = [];
  try {
    for (let round = -warmup; round < rounds; round++) {
      const samples: Record<string, Sample> = {};
      for (const side of round % 2 === 0 ? sides : [...sides].reverse()) samples[side.name] = await side.measure();
      if (round >= 0) kept.push(samples);
    }
  } finally {
    await Promise.all(sides.map((side) => side.stop()));
  }
  return kept;
}

/** All values of one measure of one side. */
export function valuesOf(rounds: Rounds, side: string, measure: string): number[] {
  return rounds.map((round) => {
    const value = round[side]?.[measure];
    if (value === undefined) throw new Error(`${side} reports no ${measure}`);
    return value;
  });
}

/** Spread over rounds of `combine(a, b)`, e.g. a ratio. */
export function pairedSpread(
  rounds: Rounds,
  [a, b]: readonly [string, string],
  measure: string,
  combine: (a: number, b: number) => number,
): Spread {
  const right = valuesOf(rounds, b, measure);
  return spread(valuesOf(rounds, a, measure).map((value, i) => combine(value, right[i] ?? Number.NaN)));
}
