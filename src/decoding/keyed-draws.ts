/**
 * The coupled form of sampling (decoding.md §4): completion token j is always the draw with key (seed, j), so that a
 * draft made with the same key is often the same token, and the text is the same in every mode, cap and batch.
 */
import { concatenate, type MlxArray, shapeOf } from "../mlx/array.ts";
import { log, slice } from "../mlx/ops.ts";
import { categorical, randomKey } from "../mlx/random.ts";
import { drawBits } from "./rng.ts";

/**
 * The target's own draws after each row of a verify.
 * @param probabilities float32 [rows, V], as they are drawn from
 * @param first completion index of row 0
 * @returns uint32 [rows]
 */
export function keyedDraws(probabilities: MlxArray, seed: bigint, first: number): MlxArray {
  const [rows = 0, vocab = 0] = shapeOf(probabilities);
  const logits = log(probabilities);
  // One draw a row, with the shape that a plain step has: the numbers depend on shape and key.
  const draws = Array.from({ length: rows }, (_, i) =>
    categorical(slice(logits, [i, 0], [i + 1, vocab]), -1, randomKey(drawBits(seed, first + i))),
  );
  return concatenate(draws, 0);
}
