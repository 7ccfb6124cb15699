/**
 * The law that drafts were drawn from, as acceptance needs it: over the target's vocabulary (decoding.md §4, the table of
 * sources). A truncated or selector-made law is taken as it is; drafts that were certain have none.
 */
import { type MlxArray, shapeOf } from "../mlx/array.ts";
import { broadcastTo, scatterAddAxis, zeros } from "../mlx/ops.ts";

/** Probabilities float32 [n, m, V]; null: each draft had probability one (lookup, forced, or any argmax). */
export type DraftLaw = MlxArray | null;

/**
 * Probabilities over few target ids, as rows over the whole vocabulary.
 * @param probabilities float32 [n, m, K]
 * @param ids int32 or uint32, all different: [n, m, K] for candidates of each place, [K] for a reduced vocabulary
 */
export function widen(probabilities: MlxArray, ids: MlxArray, vocab: number): MlxArray {
  const shape = shapeOf(probabilities);
  const [blocks = 1, drafts = 1] = shape;
  return scatterAddAxis(zeros([blocks, drafts, vocab], "float32"), broadcastTo(ids, shape), probabilities, -1);
}
