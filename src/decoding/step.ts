/**
 * One step: a forward over a flat list of tokens drawn from rows, and the choice of each row's next token, scheduled as
 * one graph without waiting. `settle` waits and gives the ids: the one host sync of a step. The next step may be
 * scheduled before this one is settled, because a row's pending token is a device array.
 */
import {
  asyncEvaluate,
  concatenate,
  dim,
  firstInt,
  free,
  int32Array,
  keep,
  type MlxArray,
  scope,
} from "../mlx/array.ts";
import { synchronize } from "../mlx/native.ts";
import { argmax, slice, view } from "../mlx/ops.ts";
import type { TargetModel } from "../models/target.ts";
import { StepBatch } from "../nn/layer-state.ts";
import { arraysOf, discardLogprob, type PendingLogprob, readLogprob, scheduleLogprob } from "./logprobs.ts";
import type { Row } from "./row.ts";
import type { TokenLogprob } from "./sampling-params.ts";
import { ALL_TOKENS, type TokenMask, tokenMask } from "./token-mask.ts";

/** A row's part of a step: its next `count` tokens; a decode row feeds its pending token. */
export interface PlannedRow {
  readonly row: Row;
  readonly kind: "prefill" | "decode";
  readonly count: number;
  /** The drafter's guess of this step's token is to be told with it; of plain greedy decode rows alone. */
  readonly watched?: boolean;
}

export interface SettledToken {
  readonly row: Row;
  readonly id: number;
  /** Whether the watched draft was this token; null: none was. */
  readonly foreseen: boolean | null;
  readonly logprob: TokenLogprob | null;
}

/** A row whose token could not be chosen; the other rows of its step go on. */
export interface FailedRow {
  readonly row: Row;
  readonly error: unknown;
}

/** A scheduled step. Must be settled; one whose `settle` throws must be discarded. */
export interface InFlightStep {
  readonly plan: readonly PlannedRow[];
  /** Unusable from now on; `settle` adds those whose grammar fails. */
  readonly failed: readonly FailedRow[];
  /**
   * Waits for the step and commits; one entry for each live row that chose a token (all but inner prefill chunks).
   * @throws MlxError; nothing is committed then
   */
  settle(): SettledToken[];
  /** Frees what the step holds; again is a no-op. */
  discard(): void;
}

interface Choice {
  readonly row: Row;
  readonly token: MlxArray;
  /** The watched draft, uint32 [1]. */
  readonly guess: MlxArray | null;
  readonly logprob: PendingLogprob | null;
}

/**
 * Schedules the plan. On return the rows count it as done (`cached`, `chosen`, `pending`).
 * @param vocab logits beyond it are padding and never chosen
 * @param tapLayers what the rows' drafter contexts want of the target; every token of a step is committed
 * @throws MlxError; the rows of the plan are then unusable
 */
export function scheduleStep(
  model: TargetModel,
  plan: readonly PlannedRow[],
  vocab: number,
  tapLayers: readonly number[] = [],
): InFlightStep {
  const choices: Choice[] = [];
  const failed: FailedRow[] = [];
  const guesses = new Map<Row, MlxArray>();
  try {
    scope(() => {
      for (const planned of plan) if (planned.watched) guesses.set(planned.row, guess(planned.row));
      const batch = new StepBatch(
        plan.map(({ row, count }) => ({ states: row.states, count, offset: row.cached })),
        // No row waits for a step: the device is idle.
        { eager: plan.every(({ row }) => row.pending === null) },
      );
      const { hidden, taps } = model.forward(inputIds(plan), batch, tapLayers);
      if (taps !== null) extendContexts(plan, taps);
      chooseTokens(model, plan, hidden, vocab, guesses, choices, failed);
    });
    for (const { row, count } of plan) row.cached += count;
    for (const { row, token } of choices) {
      row.pending = token;
      row.chosen++;
    }
    // A row's states are computed on the way to its token; an inner chunk has none and is evaluated by its states.
    const choosing = new Set([...choices, ...failed].map(({ row }) => row));
    const inner = plan
      .filter(({ row }) => !choosing.has(row))
      .flatMap(({ row }) => row.states.flatMap((s) => s.arrays()));
    const outputs = choices.flatMap(({ token, guess, logprob }) => [
      token,
      ...(guess === null ? [] : [guess]),
      ...(logprob === null ? [] : arraysOf(logprob)),
    ]);
    const contexts = plan.flatMap(({ row }) => row.drafting?.session?.arrays() ?? []);
    asyncEvaluate([...outputs, ...inner, ...contexts]);
  } catch (error) {
    for (const choice of choices) drop(choice);
    throw error;
  }
  return new Scheduled(plan, choices, failed);
}

class Scheduled implements InFlightStep {
  constructor(
    readonly plan: readonly PlannedRow[],
    private readonly choices: Choice[],
    readonly failed: FailedRow[],
  ) {}

  settle(): SettledToken[] {
    if (this.choices.length + this.failed.length < this.plan.length) synchronize();
    const read = this.choices.map(({ row, token, guess, logprob }) => {
      const id = firstInt(token);
      const foreseen = guess === null ? null : firstInt(guess) === id;
      return { row, id, foreseen, logprob: logprob === null ? null : readLogprob(logprob, id) };
    });
    this.discard();
    return read.filter(({ row, id }) => {
      if (!row.live) return false;
      row.tokens.push(id);
      try {
        row.constraint?.commit([id]);
        return true;
      } catch (error) {
        this.failed.push({ row, error });
        return false;
      }
    });
  }

  discard(): void {
    for (const choice of this.choices.splice(0)) drop(choice);
  }
}

/** Frees what a choice holds; a row that still points at the token goes on from the committed id. */
function drop({ row, token, guess, logprob }: Choice): void {
  if (logprob !== null) discardLogprob(logprob);
  if (guess !== null) {
    free(guess);
    if (row.drafting !== null) row.drafting.watching = false;
  }
  if (row.pending === token) row.pending = null;
  free(token);
}

/** The drafter's guess of the token behind the pending one, from what its context holds before the step: uint32 [1]. */
function guess(row: Row): MlxArray {
  const session = row.drafting?.session;
  if (!row.drafting || !session) throw new TypeError("a row without a drafter cannot be watched");
  const anchor = row.pending ?? int32Array(row.tokens.slice(row.cached, row.cached + 1));
  const { ids } = session.propose(anchor, 1, row.sampler.draftLaw(1, row.chosen));
  row.drafting.watching = true;
  return ids;
}

/** Each row's part of the taps goes to its drafter's context. */
function extendContexts(plan: readonly PlannedRow[], taps: MlxArray): void {
  const width = dim(taps, 1);
  let start = 0;
  for (const { row, kind, count } of plan) {
    const own = plan.length === 1 ? taps : slice(taps, [start, 0], [start + count, width]);
    row.drafting?.session?.committed(own, kind === "decode");
    start += count;
  }
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

/**
 * What may follow the committed text. A row with a grammar comes here with its prompt alone: its later tokens need the
 * one before on the host first, and are chosen in rounds.
 * @throws ConstraintError, NoLegalToken
 */
function firstMask({ constraint }: Row, vocab: number): TokenMask {
  return constraint === null ? ALL_TOKENS : tokenMask(constraint.masks([]).words(), vocab);
}

/** The next token of each row whose prompt ends in this step or that decodes; the handles in `choices` are kept. */
function chooseTokens(
  model: TargetModel,
  plan: readonly PlannedRow[],
  hidden: MlxArray,
  vocab: number,
  guesses: ReadonlyMap<Row, MlxArray>,
  choices: Choice[],
  failed: FailedRow[],
): void {
  const ends: { row: Row; at: number }[] = [];
  let start = 0;
  for (const { row, count } of plan) {
    start += count;
    if (row.cached + count >= row.promptLength) ends.push({ row, at: start - 1 });
  }
  if (ends.length === 0) return;
  const lastRow = (at: number) => slice(hidden, [at, 0], [at + 1, model.hiddenSize]);
  const wanted =
    ends.length === start
      ? hidden
      : concatenate(
          ends.map(({ at }) => lastRow(at)),
          0,
        );
  const full = model.logits(wanted);
  const logits = vocab < model.vocabSize ? slice(full, [0, 0], [ends.length, vocab]) : full;
  const bare = ({ sampler, constraint }: Row) => sampler.plainGreedy && constraint === null;
  const greedy = ends.some(({ row }) => bare(row)) ? argmax(logits, -1) : null;
  const alone = ends.length === 1;
  for (const [i, { row }] of ends.entries()) {
    const own = alone ? logits : slice(logits, [i, 0], [i + 1, vocab]);
    try {
      const token =
        greedy === null || !bare(row)
          ? row.sampler.choose(own, row.chosen, firstMask(row, vocab))
          : alone
            ? greedy
            : slice(greedy, [i], [i + 1]);
      const top = row.limits.topLogprobs;
      const logprob = top === null ? null : scheduleLogprob(own, token, top);
      const guess = guesses.get(row);
      choices.push({ row, token: keep(token), guess: guess === undefined ? null : keep(guess), logprob });
    } catch (error) {
      failed.push({ row, error });
    }
  }
}
