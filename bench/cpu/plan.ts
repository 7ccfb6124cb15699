/** What is measured, of whom and how often: every must of the CPU backend, and the curves around it. */
import { type Dose, type Task, taskName } from "./task.ts";

export const OURS = "ours";
export const Q4_1 = "llama.cpp Q4_1";
export const Q4_0 = "llama.cpp Q4_0";
export const MLX_LM = "mlx-lm f32";
export const HAND_MADE = "hand-made";

export type SideName = typeof OURS | typeof Q4_1 | typeof Q4_0 | typeof MLX_LM | typeof HAND_MADE;

export const SHORT_CONTEXT = 128;
/** The model's window is 8192 tokens: the longest context leaves room for what is decoded. */
export const LONG_CONTEXT = 8160;

export interface Entry {
  readonly task: Task;
  readonly threads: number;
  readonly sides: readonly SideName[];
}

/** Measured as a whole, rotation by rotation. */
export interface Part {
  readonly title: string;
  readonly entries: readonly Entry[];
  /** Sequences that it needs and no part before it has made. */
  readonly contexts: readonly number[];
}

const ENGINES = [OURS, Q4_1, Q4_0] as const;

/** Passes over its weights before a side counts: by then they have come to rest in the last cache, as while a text is written. */
export const WARM_PASSES = 16;

/** As many counted passes as warm ones; fewer of many rows, which the processor's arithmetic holds up, not its memory. */
export function dose({ task, threads }: Entry, side: SideName): Dose {
  if (task.kind === "prefill") return { threads, runs: 1, warm: 0 };
  if (side === MLX_LM) return { threads, runs: 2, warm: 2 };
  const passes = task.kind === "rows" && task.rows > 8 ? WARM_PASSES / 4 : WARM_PASSES;
  return { threads, runs: passes, warm: passes };
}

export function entryName({ task, threads }: Entry): string {
  return `${taskName(task)}, ${threads} ${threads === 1 ? "thread" : "threads"}`;
}

function rows(counts: readonly number[], context: number, threads: number, sides: readonly SideName[]): Entry[] {
  return counts.map((count) => ({ task: { kind: "rows", rows: count, context }, threads, sides }));
}

function decode(context: number, threads: number, sides: readonly SideName[] = ENGINES): Entry {
  return { task: { kind: "decode", context }, threads, sides };
}

function prefill(tokens: number, threads: number, sides: readonly SideName[] = ENGINES): Entry {
  return { task: { kind: "prefill", tokens }, threads, sides };
}

/** What the figures need. mlx-lm takes a second for eight rows: it is measured where a figure asks for it. */
const MUSTS: readonly Entry[] = [
  ...rows([1, 4, 8], 128, 1, [...ENGINES, MLX_LM]),
  decode(128, 1, [HAND_MADE, ...ENGINES]),
  decode(2048, 1),
  prefill(512, 1),
];

export const SHORT: readonly Part[] = [{ title: "figures", entries: MUSTS, contexts: [128, 2048] }];

/** In the order in which they are worth the time: a busy machine may leave none for the last. */
export const FULL: readonly Part[] = [
  {
    title: "one thread",
    entries: [...MUSTS, ...rows([2, 16, 32], 128, 1, ENGINES), ...rows([8], 2048, 1, ENGINES), prefill(128, 1)],
    contexts: [128, 2048],
  },
  {
    title: "two threads",
    entries: [
      ...rows([1, 2, 4, 8, 16, 32], 128, 2, ENGINES),
      decode(128, 2),
      decode(2048, 2),
      prefill(128, 2),
      prefill(512, 2),
    ],
    contexts: [],
  },
  { title: "long context", entries: [decode(LONG_CONTEXT, 1), decode(LONG_CONTEXT, 2)], contexts: [LONG_CONTEXT] },
  { title: "long prompt", entries: [prefill(2048, 1), prefill(2048, 2)], contexts: [] },
];
