/** Log-probabilities of committed tokens, from the raw logits: scheduled with the step, read when the step is settled. */
import { dim, dtypeOf, free, keep, type MlxArray, toFloat32, toUint32 } from "../mlx/array.ts";
import { argpartition, astype, logsumexp, negative, reshape, slice, subtract, takeAlongAxis } from "../mlx/ops.ts";
import type { TokenLogprob } from "./sampling-params.ts";

export interface PendingLogprob {
  readonly chosen: MlxArray;
  readonly topIds: MlxArray | null;
  readonly topValues: MlxArray | null;
}

/**
 * logits [1, V], token uint32 [1] → owned arrays to evaluate with the step.
 * @param top alternatives wanted; a smaller vocabulary gives as many as it has
 */
export function scheduleLogprob(logits: MlxArray, token: MlxArray, top: number): PendingLogprob {
  const wide = dtypeOf(logits) === "float32" ? logits : astype(logits, "float32");
  const normal = subtract(wide, logsumexp(wide, -1, true));
  const chosen = takeAlongAxis(normal, reshape(token, [1, 1]), -1);
  const count = Math.min(top, dim(logits, 1));
  if (count === 0) return { chosen: keep(chosen), topIds: null, topValues: null };
  const topIds = slice(argpartition(negative(normal), count - 1, -1), [0, 0], [1, count]);
  const topValues = takeAlongAxis(normal, topIds, -1);
  return { chosen: keep(chosen), topIds: keep(topIds), topValues: keep(topValues) };
}

export function arraysOf(pending: PendingLogprob): MlxArray[] {
  return [pending.chosen, pending.topIds, pending.topValues].filter((array) => array !== null);
}

/** Waits for the values of the token `id`; the arrays stay owned. */
export function readLogprob(pending: PendingLogprob, id: number): TokenLogprob {
  const ids = pending.topIds === null ? [] : [...toUint32(pending.topIds)];
  const values = pending.topValues === null ? [] : [...toFloat32(pending.topValues)];
  const top = ids.map((candidate, i) => [candidate, values[i] ?? Number.NEGATIVE_INFINITY] as const);
  // Equal values stand in the order of their ids, as argmax would take them.
  top.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const logprob = toFloat32(pending.chosen)[0] ?? Number.NEGATIVE_INFINITY;
  return { id, logprob, top };
}

export function discardLogprob(pending: PendingLogprob): void {
  for (const array of arraysOf(pending)) free(array);
}
