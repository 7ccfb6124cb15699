/** MLX's counter-based random draws: the key alone decides the numbers, whatever ran before. */
import { commit, dtypeCode, failure, type MlxArray, scalar, slot } from "./array.ts";
import { native, stream } from "./native.ts";
import { pinnedInts } from "./pinned.ts";

const { cells: shapeCells, address: shapeAddress } = pinnedInts(8);

/** The key made from 64 bits. */
export function randomKey(seed: bigint): MlxArray {
  if (native.mlx_random_key(slot(), BigInt.asUintN(64, seed)) !== 0) throw failure("random_key");
  return commit();
}

/** One draw per row from the softmax of `logits` along `axis`; uint32 indices. */
export function categorical(logits: MlxArray, axis: number, key: MlxArray): MlxArray {
  if (native.mlx_random_categorical(slot(), logits, axis, key, stream) !== 0) throw failure("categorical", logits, key);
  return commit();
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
