/**
 * What a side is asked to measure, one line of JSON each. Every side understands every task that it is given; the times
 * it answers with are of one run: a forward, a whole prompt, a decode step.
 */

export type Task =
  /** One forward over `rows` tokens of one sequence behind `context` others, with logits and the best id of every row. */
  | { readonly kind: "rows"; readonly rows: number; readonly context: number }
  /** Plain greedy decoding behind `context` tokens; a run is a step. */
  | { readonly kind: "decode"; readonly context: number }
  /** A prompt from nothing to the logits of its last token. */
  | { readonly kind: "prefill"; readonly tokens: number };

/** How a task is measured. */
export interface Dose {
  readonly threads: number;
  readonly runs: number;
  /** Runs before the measured ones, which find the caches as the other sides left them. */
  readonly warm: number;
}

/** Sent before the tasks that need them: sequences of these lengths, ascending, are made from shorter ones and kept. */
export interface Preparation {
  readonly kind: "prepare";
  readonly contexts: readonly number[];
}

export type Request = Preparation | (Task & Dose);

export function taskName(task: Task): string {
  if (task.kind === "prefill") return `prefill ${task.tokens}`;
  if (task.kind === "decode") return `decode at ${task.context}`;
  return `${task.rows} ${task.rows === 1 ? "row" : "rows"} at ${task.context}`;
}

/** Ids of a text of any length: all sides compute the same tokens. */
export function tokenAt(position: number): number {
  return 500 + ((position * 7919) % 40000);
}
