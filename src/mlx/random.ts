/** MLX's counter-based random draws: the key alone decides the numbers, whatever ran before. */
import { commit, dim, dtypeCode, failure, type MlxArray, ndim, scalar, sizeOf, slot } from "./array.ts";
import { native, stream } from "./native.ts";
import { reshape } from "./ops.ts";
import { pinnedInts } from "./pinned.ts";

const { cells: shapeCells, address: shapeAddress } = pinnedInts(8);

/** The key made from 64 bits. */
export function randomKey(seed: bigint): MlxArray {
  if (native.mlx_random_key(slot(), BigInt.asUintN(64, seed)) !== 0) throw failure("random_key");
  return commit();
}

/**
 * One draw per row from the softmax of `logits` along `axis`; uint32 indices, shaped as the rows.
 *
 * A single row is drawn as a vector, because MLX then takes the argmax of logits plus Gumbel noise: a token of
 * probability 0 can never come, and two close laws mostly give the same token under the same key, on which the coupled
 * form of speculation lives. For a matrix MLX inverts the distribution function with one uniform number a row instead.
 */
export function categorical(logits: MlxArray, axis: number, key: MlxArray): MlxArray {
  const vocab = dim(logits, axis);
  const alone = sizeOf(logits) === vocab;
  const rows = alone ? reshape(logits, [vocab]) : logits;
  if (native.mlx_random_categorical(slot(), rows, alone ? 0 : axis, key, stream) !== 0) {
    throw failure("categorical", logits, key);
  }
  const drawn = commit();
  return alone ? reshape(drawn, new Array<number>(ndim(logits) - 1).fill(1)) : drawn;
}

/** Uniform float32 numbers in [0, 1). */
export function uniform(shape: readonly number[], key: MlxArray): MlxArray {
  for (let i = 0; i < shape.length; i++) shapeCells[i] = shape[i] as number;
  const [low, high] = [scalar(0, "float32"), scalar(1, "float32")];
  const code = dtypeCode("float32");
  if (native.mlx_random_uniform(slot(), low, high, shapeAddress, shape.length, code, key, stream) !== 0) {
    throw failure("uniform", key);
  }
  return commit();
}
