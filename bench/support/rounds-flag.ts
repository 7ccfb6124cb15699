/** The one flag of a benchmark. */
import { parseArgs } from "node:util";

/** `--rounds N`, else the benchmark's own number. */
export function roundsFlag(standard: number): number {
  const { values } = parseArgs({ options: { rounds: { type: "string" } } });
  const rounds = values.rounds === undefined ? standard : Number(values.rounds);
  if (!Number.isInteger(rounds) || rounds < 1) throw new RangeError(`--rounds must be a positive integer`);
  return rounds;
}
