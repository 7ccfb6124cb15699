/**
 * Token counts for the penalties within a verify block (decoding.md §5, step 4): row i also counts the drafts fed before
 * it, so that an accepted prefix is penalized exactly as in sequential decoding. On the device: no draft id is read.
 */
import { float32Array, type MlxArray, shapeOf } from "../mlx/array.ts";
import { broadcastTo, reshape, scatterAddAxis } from "../mlx/ops.ts";

/**
 * @param counts float32 [n, V]: occurrences before the block's drafts, the pending token included
 * @param draft int32 or uint32 [n, m], m ≥ 0
 * @returns float32 [n, m + 1, V]
 */
export function blockCounts(counts: MlxArray, draft: MlxArray): MlxArray {
  const [blocks = 1, drafts = 0] = shapeOf(draft);
  const vocab = shapeOf(counts)[1] ?? 0;
  const rows = drafts + 1;
  const before = broadcastTo(reshape(counts, [blocks, 1, vocab]), [blocks, rows, vocab]);
  if (drafts === 0) return before;
  const fed = Float32Array.from({ length: rows * drafts }, (_, i) => (i % drafts < Math.floor(i / drafts) ? 1 : 0));
  const shape = [blocks, rows, drafts];
  const ids = broadcastTo(reshape(draft, [blocks, 1, drafts]), shape);
  return scatterAddAxis(before, ids, broadcastTo(float32Array(fed, [1, rows, drafts]), shape), -1);
}
