/**
 * What the target's logits say of a committed token: its rank, which must be 1 in greedy decoding of any mode, and how
 * near the runner-up was, which tells a tie of floating point from a fault (decoding.md §10).
 */
import { concatenate, dtypeOf, float32Array, type MlxArray, shapeOf, toFloat32 } from "../mlx/array.ts";
import { add, argmax, astype, greater, max, putAlongAxis, reshape, subtract, sum, takeAlongAxis } from "../mlx/ops.ts";

export interface TokenEvidence {
  /** 1 + tokens with a greater logit. */
  readonly rank: number;
  /** Best logit less the second best. */
  readonly gap: number;
  /** Best logit. */
  readonly top: number;
}

/**
 * @param logits [n, V] as the choice was made from
 * @param chosen int32 or uint32 [n]
 * @returns float32 [n, 3], lazy: for `readEvidence`
 */
export function evidenceOf(logits: MlxArray, chosen: MlxArray): MlxArray {
  const [rows = 0] = shapeOf(logits);
  const wide = dtypeOf(logits) === "float32" ? logits : astype(logits, "float32");
  const own = takeAlongAxis(wide, reshape(chosen, [rows, 1]), -1);
  const rank = add(sum(astype(greater(wide, own), "float32"), -1, true), float32Array([1]));
  const top = max(wide, -1, true);
  const lowest = float32Array(new Float32Array(rows).fill(Number.NEGATIVE_INFINITY), [rows, 1]);
  const second = max(putAlongAxis(wide, argmax(wide, -1, true), lowest, -1), -1, true);
  return concatenate([rank, subtract(top, second), top], 1);
}

/** Waits. */
export function readEvidence(evidence: MlxArray): TokenEvidence[] {
  const values = toFloat32(evidence);
  return Array.from({ length: values.length / 3 }, (_, i) => ({
    rank: values[3 * i] as number,
    gap: values[3 * i + 1] as number,
    top: values[3 * i + 2] as number,
  }));
}
