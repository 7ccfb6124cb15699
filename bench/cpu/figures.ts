/**
 * What the CPU backend promises, computed from a run: each figure with what it must reach and what it is meant to. All are
 * of CPU time with one thread, which is the one measure that a shared machine leaves steady; but what the graph adds to a
 * step is wall time above the hand-made forward's CPU time, since one step is built while another is computed.
 */
import { pairedSpread, type Rounds } from "../support/paired.ts";
import { type Spread, spread } from "../support/statistics.ts";
import { type Entry, entryName, HAND_MADE, MLX_LM, OURS, Q4_0, Q4_1, type SideName } from "./plan.ts";
import type { Task } from "./task.ts";

export interface Figure {
  readonly name: string;
  readonly unit: "×" | "ms";
  readonly value: Spread;
  readonly sense: "at least" | "at most";
  readonly must: number;
  readonly goal: number;
}

/** By the name of its entry: what every rotation measured. */
export type Measured = ReadonlyMap<string, Rounds>;

const rowsAt128 = (rows: number): Task => ({ kind: "rows", rows, context: 128 });
const decodeAt = (context: number): Task => ({ kind: "decode", context });
const PROMPT: Task = { kind: "prefill", tokens: 512 };

export function figures(measured: Measured): Figure[] {
  const of = (task: Task): Rounds => roundsOf(measured, { task, threads: 1, sides: [] });
  const faster = (name: string, task: Task, peer: SideName, must: number, goal: number): Figure => ({
    name,
    unit: "×",
    value: pairedSpread(of(task), [peer, OURS], "process_ns", (theirs, ours) => theirs / ours),
    sense: "at least",
    must,
    goal,
  });
  const curve = (rows: number, must: number, goal: number): Figure => ({
    name: `${rows} rows / 1 row`,
    unit: "×",
    value: costOf(of(rowsAt128(rows)), of(rowsAt128(1)), OURS),
    sense: "at most",
    must,
    goal,
  });
  return [
    faster("decode, faster than llama.cpp on the same weights (Q4_1)", decodeAt(128), Q4_1, 1.2, 1.5),
    faster("decode, faster than llama.cpp's best format (Q4_0)", decodeAt(128), Q4_0, 0.9, 1.05),
    curve(4, 1.6, 1.3),
    curve(8, 2.5, 2),
    faster("8 rows, faster than llama.cpp Q4_1", rowsAt128(8), Q4_1, 4, 5),
    faster("8 rows, faster than llama.cpp Q4_0", rowsAt128(8), Q4_0, 2, 2.5),
    faster("prefill 512, faster than llama.cpp Q4_1", PROMPT, Q4_1, 3.5, 4.5),
    faster("prefill 512, faster than llama.cpp Q4_0", PROMPT, Q4_0, 1, 1.3),
    faster("decode at 2048, faster than llama.cpp Q4_0", decodeAt(2048), Q4_0, 1.2, 1.5),
    faster("1 row, faster than mlx-lm in float32", rowsAt128(1), MLX_LM, 15, 25),
    faster("4 rows, faster than mlx-lm in float32", rowsAt128(4), MLX_LM, 45, 75),
    faster("8 rows, faster than mlx-lm in float32", rowsAt128(8), MLX_LM, 45, 80),
    {
      name: "graph and FFI: wall time of a step above the hand-made forward",
      unit: "ms",
      value: spread(
        of(decodeAt(128)).map(({ [OURS]: ours, [HAND_MADE]: bare }) => {
          return ((ours?.wall_ns ?? Number.NaN) - (bare?.process_ns ?? Number.NaN)) / 1e6;
        }),
      ),
      sense: "at most",
      must: 1,
      goal: 0.4,
    },
  ];
}

export function reaches({ value, sense }: Figure, limit: number): boolean {
  return sense === "at least" ? value.median >= limit : value.median <= limit;
}

export function roundsOf(measured: Measured, entry: Entry): Rounds {
  const rounds = measured.get(entryName(entry));
  if (rounds === undefined) throw new RangeError(`${entryName(entry)} was not measured`);
  return rounds;
}

/** Cost of one task in terms of another of the same side, rotation by rotation. */
export function costOf(rounds: Rounds, unit: Rounds, side: SideName): Spread {
  return spread(
    rounds.map((round, i) => (round[side]?.process_ns ?? Number.NaN) / (unit[i]?.[side]?.process_ns ?? Number.NaN)),
  );
}
