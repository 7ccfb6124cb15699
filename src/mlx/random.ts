/** MLX's counter-based random draws: the key alone decides the numbers, whatever ran before. */
import { commit, failure, type MlxArray, slot } from "./array.ts";
import { native, stream } from "./native.ts";

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
