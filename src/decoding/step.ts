/**
 * One step: a forward over a flat list of tokens drawn from rows, and the choice of each row's next token, scheduled as
 * one graph without waiting. `settle` waits and gives the ids: the one host sync of a step. The next step may be
 * scheduled before this one is settled, because a row's pending token is a device array.
 */
import { asyncEvaluate, concatenate, firstInt, free, int32Array, keep, type MlxArray, scope } from "../mlx/array.ts";
import { synchronize } from "../mlx/native.ts";
import { argmax, slice, view } from "../mlx/ops.ts";
import type { TargetModel } from "../models/target.ts";
import { StepBatch } from "../nn/layer-state.ts";
import { arraysOf, discardLogprob, type PendingLogprob, scheduleLogprob, settleLogprob } from "./logprobs.ts";
import type { Row } from "./row.ts";
import type { TokenLogprob } from "./sampling-params.ts";

/** A row's part of a step: its next `count` tokens; a decode row feeds its pending token. */
export interface PlannedRow {
  readonly row: Row;
  readonly kind: "prefill" | "decode";
  readonly count: number;
}

export interface SettledToken {
  readonly row: Row;
  readonly id: number;
  readonly logprob: TokenLogprob | null;
}

/** A scheduled step. Must be settled or discarded. */
export interface InFlightStep {
  readonly plan: readonly PlannedRow[];
  /** Waits for the step and commits; one entry for each live row that chose a token (all but inner prefill chunks). */
  settle(): SettledToken[];
  /** Gives the step up after an error. */
  discard(): void;
}

interface Choice {
  readonly row: Row;
  readonly token: MlxArray;
  readonly logprob: PendingLogprob | null;
}

/**
 * Schedules the plan. On return the rows count it as done (`cached`, `chosen`, `pending`).
 * @param vocab logits beyond it are padding and never chosen
 * @throws MlxError; the rows of the plan are then unusable
 */
export function scheduleStep(model: TargetModel, plan: readonly PlannedRow[], vocab: number): InFlightStep {
  const choices = scope(() => {
    const batch = new StepBatch(plan.map(({ row, count }) => ({ states: row.states, count, offset: row.cached })));
    const { hidden } = model.forward(inputIds(plan), batch);
    return chooseTokens(model, plan, hidden, vocab);
  });
  for (const { row, count } of plan) row.cached += count;
  for (const { row, token } of choices) {
    row.pending = token;
    row.chosen++;
  }
  // A row's states are computed on the way to its token; an inner chunk has none and is evaluated by its states.
  const choosing = new Set(choices.map((choice) => choice.row));
  const inner = plan
    .filter(({ row }) => !choosing.has(row))
    .flatMap(({ row }) => row.states.flatMap((s) => s.arrays()));
  const outputs = choices.flatMap(({ token, logprob }) => [token, ...(logprob === null ? [] : arraysOf(logprob))]);
  asyncEvaluate([...outputs, ...inner]);
  return new Scheduled(plan, choices);
}

class Scheduled implements InFlightStep {
  constructor(
    readonly plan: readonly PlannedRow[],
    private readonly choices: readonly Choice[],
  ) {}

  settle(): SettledToken[] {
    if (this.choices.length < this.plan.length) synchronize();
    const settled: SettledToken[] = [];
    for (const { row, token, logprob } of this.choices) {
      const id = firstInt(token);
      const report = logprob === null ? null : settleLogprob(logprob, id);
      release(row, token);
      if (!row.live) continue;
      row.tokens.push(id);
      settled.push({ row, id, logprob: report });
    }
    return settled;
  }

  discard(): void {
    for (const { row, token, logprob } of this.choices) {
      if (logprob !== null) discardLogprob(logprob);
      release(row, token);
    }
  }
}

/** Frees a step's token; the row that still points at it goes on from the committed id. */
function release(row: Row, token: MlxArray): void {
  if (row.pending === token) row.pending = null;
  free(token);
}

/** The flat ids of a plan, int32 or uint32 [R]. */
function inputIds(plan: readonly PlannedRow[]): MlxArray {
  const parts = plan.map(({ row, kind, count }) => {
    if (kind === "prefill" || row.pending === null) {
      return int32Array(row.tokens.slice(row.cached, row.cached + count));
    }
    return plan.length === 1 ? row.pending : view(row.pending, "int32");
  });
  return concatenate(parts, 0);
}

/** The next token of each row whose prompt ends in this step or that decodes; handles are kept. */
function chooseTokens(model: TargetModel, plan: readonly PlannedRow[], hidden: MlxArray, vocab: number): Choice[] {
  const chosen: { row: Row; at: number }[] = [];
  let start = 0;
  for (const { row, count } of plan) {
    start += count;
    if (row.cached + count >= row.promptLength) chosen.push({ row, at: start - 1 });
  }
  if (chosen.length === 0) return [];
  const width = model.hiddenSize;
  const all = chosen.length === start;
  const wanted = all
    ? hidden
    : concatenate(
        chosen.map(({ at }) => slice(hidden, [at, 0], [at + 1, width])),
        0,
      );
  const full = model.logits(wanted);
  const logits = vocab < model.vocabSize ? slice(full, [0, 0], [chosen.length, vocab]) : full;
  const greedy = chosen.some(({ row }) => row.sampler.plainGreedy) ? argmax(logits, -1) : null;
  return chosen.map(({ row }, i) => {
    const own = chosen.length === 1 ? logits : slice(logits, [i, 0], [i + 1, vocab]);
    const token =
      row.sampler.plainGreedy && greedy !== null
        ? chosen.length === 1
          ? greedy
          : slice(greedy, [i], [i + 1])
        : row.sampler.choose(own, row.chosen);
    const top = row.limits.topLogprobs;
    const logprob = top === null ? null : scheduleLogprob(own, token, top);
    return { row, token: keep(token), logprob };
  });
}
