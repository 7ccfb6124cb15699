/**
 * One round: draft, verify, accept, roll back (decoding.md §3, §4). The drafts of all rows, one verify forward over
 * [pending, d_1 … d_m] of each, and the acceptance are one graph with one host sync; then each row is trimmed to what was
 * accepted, and the accepted rows of the taps go to its drafter's context. A row without drafts is a round with m = 0.
 */
import type { Drafter, DraftRow, Proposal } from "../drafters/drafter.ts";
import {
  asyncEvaluate,
  concatenate,
  dim,
  free,
  int32Array,
  keep,
  type MlxArray,
  scope,
  toFloat32,
} from "../mlx/array.ts";
import { slice, view } from "../mlx/ops.ts";
import type { TargetModel } from "../models/target.ts";
import { StepBatch } from "../nn/layer-state.ts";
import { type Acceptance, discardAcceptance, keepAcceptance, readAcceptance } from "./accept.ts";
import { arraysOf, discardLogprob, type PendingLogprob, readLogprob, scheduleLogprob } from "./logprobs.ts";
import type { Row } from "./row.ts";
import type { TokenLogprob } from "./sampling-params.ts";

export type DraftSource = "drafter" | "lookup" | "plain";

/** How a row drafts in this round. */
export type PlannedDraft =
  | { readonly source: "plain" }
  | { readonly source: "lookup"; readonly tokens: Int32Array }
  /** At most `cap` drafts, ≥ 1, cut where their joint confidence falls below `confidenceThreshold`; 0: never. */
  | { readonly source: "drafter"; readonly cap: number; readonly confidenceThreshold: number };

export interface PlannedRound {
  readonly row: Row;
  readonly draft: PlannedDraft;
}

export interface SettledRound {
  readonly row: Row;
  readonly source: DraftSource;
  readonly drafted: number;
  readonly accepted: number;
  /** Committed ids, in order, cut behind the first EOS. */
  readonly ids: readonly number[];
  readonly logprobs: readonly TokenLogprob[] | null;
}

export interface RoundOptions {
  readonly drafter: Drafter | null;
  /** Logits beyond it are padding and never chosen. */
  readonly vocab: number;
}

/** One row's block in the graph. */
interface Block {
  readonly row: Row;
  readonly source: DraftSource;
  /** uint32 or int32 [m]; null for m = 0. */
  readonly draft: MlxArray | null;
  readonly q: MlxArray | null;
  readonly count: number;
}

interface Verified {
  readonly block: Block;
  readonly acceptance: Acceptance;
  readonly logprobs: readonly PendingLogprob[] | null;
}

/**
 * Runs one round for rows that have no step in flight. On return the rows, their states and contexts hold exactly what
 * was committed.
 * @throws MlxError; the rows are then unusable
 */
export function runRound(model: TargetModel, plan: readonly PlannedRound[], options: RoundOptions): SettledRound[] {
  const { drafter, vocab } = options;
  const verified: Verified[] = [];
  let taps: MlxArray | null = null;
  try {
    scope(() => {
      const blocks = draftBlocks(plan, options);
      const batch = new StepBatch(
        blocks.map(({ row, count }) => ({ states: row.states, count: count + 1, offset: row.cached })),
      );
      const forward = model.forward(blockIds(blocks), batch, drafter?.taps ?? []);
      if (forward.taps !== null) taps = keep(forward.taps);
      const full = model.logits(forward.hidden);
      const logits = vocab < model.vocabSize ? slice(full, [0, 0], [batch.total, vocab]) : full;
      let start = 0;
      for (const block of blocks) {
        const rows = block.count + 1;
        const own = blocks.length === 1 ? logits : slice(logits, [start, 0], [start + rows, vocab]);
        verify(block, own, verified);
        start += rows;
      }
    });
    const outputs = verified.flatMap(({ acceptance, logprobs }) => [
      acceptance.accepted,
      acceptance.tokens,
      ...(logprobs ?? []).flatMap(arraysOf),
    ]);
    asyncEvaluate(outputs);
    return settle(verified, taps);
  } finally {
    for (const { acceptance, logprobs } of verified) {
      discardAcceptance(acceptance);
      for (const pending of logprobs ?? []) discardLogprob(pending);
    }
    if (taps !== null) free(taps);
  }
}

/** The drafts of every row: those of the drafter in one batched block. */
function draftBlocks(plan: readonly PlannedRound[], { drafter, vocab }: RoundOptions): Block[] {
  const asked: DraftRow[] = [];
  for (const { row, draft } of plan) {
    const session = row.drafting?.session;
    if (draft.source !== "drafter" || !session) continue;
    asked.push({ session, anchor: anchorOf(row), cap: draft.cap, law: row.sampler.draftLaw(draft.cap, row.chosen) });
  }
  const proposals = drafter === null || asked.length === 0 ? [] : drafter.propose(asked);
  let next = 0;
  return plan.map(({ row, draft }): Block => {
    const plain: Block = { row, source: "plain", draft: null, q: null, count: 0 };
    if (draft.source === "lookup") {
      const tokens = choosable(draft.tokens, vocab);
      if (tokens.length === 0) return plain;
      return { row, source: "lookup", draft: int32Array(tokens), q: null, count: tokens.length };
    }
    const proposal = draft.source === "drafter" ? proposals[next++] : undefined;
    if (draft.source === "plain" || proposal === undefined) return plain;
    const count = Math.min(confidentCount(proposal, draft.confidenceThreshold), proposal.count);
    const whole = count === proposal.count;
    const ids = whole ? proposal.ids : slice(proposal.ids, [0], [count]);
    const q = proposal.q === null || whole ? proposal.q : slice(proposal.q, [0, 0], [count, dim(proposal.q, 1)]);
    return { row, source: "drafter", draft: ids, q, count };
  });
}

/** Tokens before the first that is padding: a prompt may hold one, and the device checks no index into the laws. */
function choosable(tokens: Int32Array, vocab: number): Int32Array {
  const end = tokens.findIndex((id) => id >= vocab);
  return end < 0 ? tokens : tokens.subarray(0, end);
}

/** Drafts whose joint confidence reaches the threshold, at least one (decoding.md §9). Waits only where there is one. */
function confidentCount({ count, confidence }: Proposal, threshold: number): number {
  if (threshold <= 0 || confidence === null) return count;
  let joint = 1;
  let kept = 0;
  for (const logit of toFloat32(confidence)) {
    joint /= 1 + Math.exp(-logit);
    if (joint < threshold) break;
    kept++;
  }
  return Math.max(1, kept);
}

/** The token that is committed and not yet in the states, int32 [1]. */
function anchorOf(row: Row): MlxArray {
  return int32Array(row.tokens.slice(row.tokens.length - 1, row.tokens.length));
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

/** Adds the block's acceptance to `verified`, so that all of it is freed when a later op fails. */
function verify(block: Block, logits: MlxArray, verified: Verified[]): void {
  const { row, draft, q } = block;
  const drafts = draft ?? int32Array([]);
  const acceptance = keepAcceptance(row.sampler.accept(logits, drafts, q, row.chosen));
  const top = row.limits.topLogprobs;
  const logprobs: PendingLogprob[] | null = top === null ? null : [];
  verified.push({ block, acceptance, logprobs });
  if (top === null || logprobs === null) return;
  const [rows, width] = [block.count + 1, dim(logits, 1)];
  for (let i = 0; i < rows; i++) {
    const token = slice(acceptance.tokens, [0, i], [1, i + 1]);
    logprobs.push(scheduleLogprob(slice(logits, [i, 0], [i + 1, width]), token, top));
  }
}

/** The host sync, then everything that depends on how many drafts were accepted. */
function settle(verified: readonly Verified[], taps: MlxArray | null): SettledRound[] {
  const contexts: MlxArray[] = [];
  let start = 0;
  const settled = verified.map(({ block, acceptance, logprobs }): SettledRound => {
    const { row, source, count } = block;
    const committed = [...(readAcceptance(acceptance)[0] ?? [])];
    const accepted = committed.length - 1;
    const end = committed.findIndex((id) => row.limits.eos.has(id));
    const ids = end < 0 ? committed : committed.slice(0, end + 1);
    if (accepted < count) for (const state of row.states) state.trim(count - accepted);
    row.cached += accepted + 1;
    row.chosen += ids.length;
    row.sampler.committed(ids);
    const session = row.drafting?.session;
    if (session && taps !== null) {
      const [from, width] = [start, dim(taps, 1)];
      const source = taps;
      scope(() => session.committed(slice(source, [from, 0], [from + accepted + 1, width])));
      contexts.push(...session.arrays());
    }
    for (const id of ids) row.tokens.push(id);
    start += count + 1;
    const reported = logprobs === null ? null : ids.map((id, i) => readLogprob(logprobs[i] as PendingLogprob, id));
    return { row, source, drafted: count, accepted, ids, logprobs: reported };
  });
  if (contexts.length > 0) asyncEvaluate(contexts);
  return settled;
}
