/**
 * The drafts of every row of a round: those of the drafter in one batched block, cut where confidence or a row's grammar
 * ends them. Only rows with a grammar, or a threshold on confidence, wait for the device here: their ids decide the cut
 * (structured-output.md §5).
 */
import type { Drafter, DraftRow, Proposal } from "../drafters/drafter.ts";
import { dim, evaluate, int32Array, keep, type MlxArray, toFloat32, toInt32 } from "../mlx/array.ts";
import { slice } from "../mlx/ops.ts";
import type { MaskRows } from "./constraint.ts";
import type { Row } from "./row.ts";
import type { FailedRow } from "./step.ts";

export type DraftSource = "drafter" | "lookup" | "forced" | "plain";

/** How a row drafts in this round. */
export type PlannedDraft =
  /** `watched`: a draft is made and compared with the token that the step chooses, but not verified. */
  | { readonly source: "plain"; readonly watched?: boolean }
  /** Of a row's own text, or what its grammar says must follow. */
  | { readonly source: "lookup"; readonly tokens: Int32Array }
  | { readonly source: "forced"; readonly tokens: Int32Array }
  /** At most `cap` drafts, ≥ 1, cut where their joint confidence falls below `confidenceThreshold`; 0: never. */
  | { readonly source: "drafter"; readonly cap: number; readonly confidenceThreshold: number };

export interface PlannedRound {
  readonly row: Row;
  readonly draft: PlannedDraft;
}

/** One row's block in the graph; arrays are kept, to be freed by the round. */
export interface Block {
  readonly row: Row;
  readonly source: DraftSource;
  /** Drafts that are fed. */
  readonly count: number;
  /** uint32 or int32 [count]; null for none. */
  readonly draft: MlxArray | null;
  /** The law of the drafts, float32 [count, V] with a row more for a refused draft; null: they were certain. */
  readonly q: MlxArray | null;
  /** The row's grammar ended the draft early. */
  readonly cut: boolean;
  /** null: the row is free. */
  readonly legality: { readonly rows: MaskRows; readonly refused: MlxArray | null } | null;
}

interface Drafted {
  readonly row: Row;
  readonly source: DraftSource;
  readonly count: number;
  readonly ids: MlxArray | null;
  /** The same on the host, where they come from it. */
  readonly known: Int32Array | null;
  readonly q: MlxArray | null;
}

/**
 * To be called inside a scope.
 * @param vocab ids beyond it are padding and never drafted
 * @param failed gets the rows whose grammar failed: they have no block
 * @param held gets every array that a block keeps
 */
export function draftBlocks(
  plan: readonly PlannedRound[],
  drafter: Drafter | null,
  vocab: number,
  failed: FailedRow[],
  held: MlxArray[],
): Block[] {
  const drafted = proposeAll(plan, drafter, vocab);
  evaluate(drafted.flatMap(({ row, ids, known }) => (row.constraint !== null && ids !== null && !known ? [ids] : [])));
  const blocks: Block[] = [];
  for (const each of drafted) {
    const { row, source, count, ids, q } = each;
    try {
      if (row.constraint !== null) readMasks(blocks);
      const block =
        row.constraint === null ? { row, source, count, draft: ids, q, cut: false, legality: null } : legalPart(each);
      for (const array of [block.draft, block.q, block.legality?.refused ?? null]) {
        if (array !== null) held.push(keep(array));
      }
      blocks.push(block);
    } catch (error) {
      failed.push({ row, error });
    }
  }
  return blocks;
}

/** One question at a time: masks are read before the next row is asked. Those of the last row may wait for the forward. */
function readMasks(blocks: Block[]): void {
  const at = blocks.findLastIndex(({ legality }) => legality !== null);
  const block = blocks[at];
  if (block === undefined || block.legality === null) return;
  const { rows, refused } = block.legality;
  let words: MaskRows["words"];
  try {
    const read = rows.words();
    words = () => read;
  } catch (error) {
    // Told when the row's turn comes: it is not the fault of the row that asks now.
    words = () => {
      throw error;
    };
  }
  blocks[at] = { ...block, legality: { rows: { ...rows, words }, refused } };
}

function proposeAll(plan: readonly PlannedRound[], drafter: Drafter | null, vocab: number): Drafted[] {
  const asked: DraftRow[] = [];
  for (const { row, draft } of plan) {
    const session = row.drafting?.session;
    if (draft.source !== "drafter" || !session) continue;
    asked.push({ session, anchor: anchorOf(row), cap: draft.cap, law: row.sampler.draftLaw(draft.cap, row.chosen) });
  }
  const proposals = drafter === null || asked.length === 0 ? [] : drafter.propose(asked);
  let next = 0;
  return plan.map(({ row, draft }): Drafted => {
    const plain: Drafted = { row, source: "plain", count: 0, ids: null, known: null, q: null };
    if (draft.source === "lookup" || draft.source === "forced") {
      const known = choosable(draft.tokens, vocab);
      if (known.length === 0) return plain;
      return { row, source: draft.source, count: known.length, ids: int32Array(known), known, q: null };
    }
    if (draft.source === "plain" || !row.drafting?.session) return plain;
    const proposal = proposals[next++];
    if (proposal === undefined) return plain;
    const count = Math.min(confidentCount(proposal, draft.confidenceThreshold), proposal.count);
    return { row, source: "drafter", known: null, ...firstOf(proposal.ids, proposal.q, count) };
  });
}

/** What of a row's drafts its grammar lets be fed. @throws ConstraintError */
function legalPart({ row, source, count, ids, known, q }: Drafted): Block {
  const { constraint, limits } = row;
  if (constraint === null) throw new Error("a row without a grammar");
  const draft = known ?? (ids === null ? [] : toInt32(ids));
  const rows = constraint.masks([...draft]);
  const { kept } = rows;
  // Behind an EOS nothing is to be verified; a cut there depends on no draft that it drops.
  const ended = kept > 0 && limits.eos.has(draft[kept - 1] ?? -1);
  const whole = { row, source, count, draft: ids, q, cut: false, legality: { rows, refused: null } };
  if (kept === count || ids === null) return whole;
  // A draft that was drawn is refused, with the law it was drawn from; a certain one was never a draft.
  const refused = q !== null && !ended ? slice(ids, [kept], [kept + 1]) : null;
  const law = q === null ? null : firstRows(q, refused === null ? kept : kept + 1);
  const fed = kept === 0 ? null : slice(ids, [0], [kept]);
  return { row, source, count: kept, draft: fed, q: law, cut: !ended, legality: { rows, refused } };
}

function firstOf(ids: MlxArray, q: MlxArray | null, count: number) {
  if (dim(ids, 0) === count) return { ids, q, count };
  return { ids: slice(ids, [0], [count]), q: q === null ? null : firstRows(q, count), count };
}

function firstRows(q: MlxArray, count: number): MlxArray | null {
  return count === 0 ? null : slice(q, [0, 0], [count, dim(q, 1)]);
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
export function anchorOf(row: Row): MlxArray {
  return int32Array(row.tokens.slice(row.tokens.length - 1, row.tokens.length));
}
