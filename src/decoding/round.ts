/**
 * One round: draft, verify, accept, roll back (decoding.md §3, §4). The drafts of all rows, one verify forward over
 * [pending, d_1 … d_m] of each, and the acceptance are one graph with one host sync; then each row is trimmed to what was
 * accepted, and the accepted rows of the taps go to its drafter's context. A row without drafts is a round with m = 0.
 * With a grammar in a row, the forward is started first and the masks are made while it runs (structured-output.md §5).
 */
import type { Drafter } from "../drafters/drafter.ts";
import { asyncEvaluate, concatenate, dim, free, int32Array, keep, type MlxArray, scope } from "../mlx/array.ts";
import { slice, view } from "../mlx/ops.ts";
import type { TargetModel } from "../models/target.ts";
import { StepBatch } from "../nn/layer-state.ts";
import { type Acceptance, discardAcceptance, keepAcceptance, readAcceptance } from "./accept.ts";
import { anchorOf, type Block, type DraftSource, draftBlocks, type PlannedRound } from "./draft-blocks.ts";
import { arraysOf, discardLogprob, type PendingLogprob, readLogprob, scheduleLogprob } from "./logprobs.ts";
import type { Row } from "./row.ts";
import type { BlockLegality } from "./sampler.ts";
import type { TokenLogprob } from "./sampling-params.ts";
import type { FailedRow } from "./step.ts";
import { ALL_TOKENS, masksAlong } from "./token-mask.ts";

export interface SettledRound {
  readonly row: Row;
  readonly source: DraftSource;
  /** Drafts that were judged: those verified, and one that the row's grammar refused after it was drawn. */
  readonly drafted: number;
  readonly accepted: number;
  /** The row's grammar ended its draft early. */
  readonly cut: boolean;
  /** Committed ids, in order, cut behind the first EOS. */
  readonly ids: readonly number[];
  readonly logprobs: readonly TokenLogprob[] | null;
}

export interface RoundResult {
  readonly settled: readonly SettledRound[];
  /** Rows whose grammar failed; the others went on. Unusable. */
  readonly failed: readonly FailedRow[];
}

export interface RoundOptions {
  readonly drafter: Drafter | null;
  /** Logits beyond it are padding and never chosen. */
  readonly vocab: number;
  /** Called when the device has its work and the host is about to wait. */
  readonly onStarted?: () => void;
}

/** A block with its place in the flat rows of the forward. */
interface Fed {
  readonly block: Block;
  readonly start: number;
}

interface Verified extends Fed {
  readonly judged: Judged;
  readonly acceptance: Acceptance;
  readonly logprobs: readonly PendingLogprob[] | null;
}

/** What of a fed block is judged. */
interface Judged {
  readonly drafts: number;
  readonly legality: BlockLegality | null;
  /** Behind the last of them nothing may follow. */
  readonly deadEnd: boolean;
}

interface Forwarded {
  /** [R, vocab] */
  readonly logits: MlxArray;
  readonly taps: MlxArray | null;
  readonly fed: readonly Fed[];
}

/**
 * Runs one round for rows that have no step in flight. On return the rows, their states, contexts and grammars hold
 * exactly what was committed.
 * @throws MlxError; the rows are then unusable
 */
export function runRound(model: TargetModel, plan: readonly PlannedRound[], options: RoundOptions): RoundResult {
  const failed: FailedRow[] = [];
  const verified: Verified[] = [];
  // Arrays that live from one scope to the next, and the taps to the end.
  const held: MlxArray[] = [];
  let taps: MlxArray | null = null;
  try {
    const forwarded = scope(() => {
      const blocks = draftBlocks(plan, options.drafter, options.vocab, failed, held);
      // The drafter runs while the host builds the forward.
      asyncEvaluate(blocks.flatMap(({ source, draft }) => (source === "drafter" && draft !== null ? [draft] : [])));
      return blocks.length === 0 ? null : forward(model, blocks, options, held);
    });
    if (forwarded === null) return { settled: [], failed };
    taps = forwarded.taps;
    if (forwarded.fed.some(({ block }) => block.legality !== null)) {
      asyncEvaluate(taps === null ? [forwarded.logits] : [forwarded.logits, taps]);
      options.onStarted?.();
    }
    scope(() => verifyAll(forwarded, options.vocab, verified, failed));
    // What is not held is computed in place.
    for (const array of held.splice(0)) free(array);
    const outputs = verified.flatMap(({ acceptance, logprobs }) => [
      acceptance.accepted,
      acceptance.tokens,
      ...(logprobs ?? []).flatMap(arraysOf),
    ]);
    asyncEvaluate(outputs);
    options.onStarted?.();
    return { settled: settle(verified, taps, failed), failed };
  } finally {
    for (const { acceptance, logprobs } of verified) {
      discardAcceptance(acceptance);
      for (const pending of logprobs ?? []) discardLogprob(pending);
    }
    for (const array of held) free(array);
    if (taps !== null) free(taps);
  }
}

/** Builds the verify forward of all blocks. */
function forward(
  model: TargetModel,
  blocks: readonly Block[],
  { drafter, vocab }: RoundOptions,
  held: MlxArray[],
): Forwarded {
  const batch = new StepBatch(
    blocks.map(({ row, count }) => ({ states: row.states, count: count + 1, offset: row.cached })),
    { eager: true },
  );
  const { hidden, taps } = model.forward(blockIds(blocks), batch, drafter?.taps ?? []);
  const full = model.logits(hidden);
  const logits = keep(vocab < model.vocabSize ? slice(full, [0, 0], [batch.total, vocab]) : full);
  held.push(logits);
  let start = 0;
  const fed = blocks.map((block): Fed => {
    const at = start;
    start += block.count + 1;
    return { block, start: at };
  });
  return { logits, taps: taps === null ? null : keep(taps), fed };
}

/** [pending, drafts] of every row behind each other, int32 [R]. */
function blockIds(blocks: readonly Block[]): MlxArray {
  const parts: MlxArray[] = [];
  for (const { row, draft } of blocks) {
    parts.push(anchorOf(row));
    if (draft !== null) parts.push(view(draft, "int32"));
  }
  return concatenate(parts, 0);
}

/** The acceptance of every block; a row without a legal token fails alone. */
function verifyAll({ logits, fed }: Forwarded, vocab: number, verified: Verified[], failed: FailedRow[]): void {
  for (const each of fed) {
    const { block, start } = each;
    let judged: Judged;
    try {
      judged = judgedPart(block, vocab);
    } catch (error) {
      failed.push({ row: block.row, error });
      continue;
    }
    const rows = judged.drafts + 1;
    const own = rows === dim(logits, 0) ? logits : slice(logits, [start, 0], [start + rows, vocab]);
    verify(each, judged, own, verified);
  }
}

/**
 * Waits for the masks. A draft may lead where no token is legal. It is judged all the same: plain decoding may choose it,
 * and a cut before it would depend on a draft that is not judged, which biases the rejection form (see `BlockLegality`).
 * What was drafted behind it is dropped; the row fails when its next round finds that it has come there.
 * @throws ConstraintError, NoLegalToken where nothing may follow the committed text
 */
function judgedPart({ count, legality }: Block, vocab: number): Judged {
  if (legality === null) return { drafts: count, legality, deadEnd: false };
  const { rows, refused } = legality;
  const masks = masksAlong(rows.words(), rows.width, vocab);
  if (masks.length === count + 1) return { drafts: count, legality: { masks, refused }, deadEnd: false };
  // The token behind the dead end is not used.
  return { drafts: masks.length, legality: { masks: [...masks, ALL_TOKENS], refused: null }, deadEnd: true };
}

/** Adds the block's acceptance to `verified`, so that all of it is freed when a later op fails. */
function verify(fed: Fed, judged: Judged, logits: MlxArray, verified: Verified[]): void {
  const { row, draft, q } = fed.block;
  const { drafts, legality, deadEnd } = judged;
  const ids = draft === null ? int32Array([]) : deadEnd ? slice(draft, [0], [drafts]) : draft;
  const law = q !== null && deadEnd ? slice(q, [0, 0], [drafts, dim(q, 1)]) : q;
  const acceptance = keepAcceptance(row.sampler.accept(logits, ids, law, row.chosen, legality));
  const top = row.limits.topLogprobs;
  const logprobs: PendingLogprob[] | null = top === null ? null : [];
  verified.push({ ...fed, judged, acceptance, logprobs });
  if (top === null || logprobs === null) return;
  const width = dim(logits, 1);
  for (let i = 0; i <= drafts; i++) {
    const token = slice(acceptance.tokens, [0, i], [1, i + 1]);
    logprobs.push(scheduleLogprob(slice(logits, [i, 0], [i + 1, width]), token, top));
  }
}

/** The host sync, then everything that depends on how many drafts were accepted. */
function settle(verified: readonly Verified[], taps: MlxArray | null, failed: FailedRow[]): SettledRound[] {
  const contexts: MlxArray[] = [];
  const settled = verified.flatMap(({ block, judged, start, acceptance, logprobs }): SettledRound[] => {
    const { row, source, count } = block;
    const { drafts, legality, deadEnd } = judged;
    const committed = [...(readAcceptance(acceptance)[0] ?? [])];
    // All stand, up to a dead end: the last of them ends the round, as a token that was chosen.
    if (deadEnd && committed.length > drafts) committed.pop();
    const accepted = committed.length - 1;
    const end = committed.findIndex((id) => row.limits.eos.has(id));
    const ids = end < 0 ? committed : committed.slice(0, end + 1);
    if (accepted < count) for (const state of row.states) state.trim(count - accepted);
    row.cached += accepted + 1;
    row.chosen += ids.length;
    row.sampler.committed(ids);
    const session = row.drafting?.session;
    if (session && taps !== null) {
      const width = dim(taps, 1);
      const source = taps;
      scope(() => session.committed(slice(source, [start, 0], [start + accepted + 1, width])));
      contexts.push(...session.arrays());
    }
    for (const id of ids) row.tokens.push(id);
    const reported = logprobs === null ? null : ids.map((id, i) => readLogprob(logprobs[i] as PendingLogprob, id));
    try {
      row.constraint?.commit(ids);
    } catch (error) {
      failed.push({ row, error });
      return [];
    }
    const drafted = drafts + (legality === null || legality.refused === null ? 0 : 1);
    return [{ row, source, drafted, accepted, cut: block.cut || deadEnd, ids, logprobs: reported }];
  });
  if (contexts.length > 0) asyncEvaluate(contexts);
  return settled;
}
