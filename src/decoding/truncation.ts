/**
 * From logits to the distribution that is drawn from: temperature, then top-k, top-p and min-p as thresholds on the
 * probability, so that ties survive together (decoding.md §5, steps 5–8 and 10). Float32 throughout.
 */
import { type MlxArray, scalar, shapeOf } from "../mlx/array.ts";
import {
  cumsum,
  divide,
  greaterEqual,
  less,
  max,
  maximum,
  multiply,
  negative,
  softmax,
  sort,
  subtract,
  sum,
  topk,
  where,
} from "../mlx/ops.ts";
import type { SamplingParams } from "./sampling-params.ts";

export type Truncation = Pick<SamplingParams, "temperature" | "topP" | "topK" | "minP">;

/** Below this a temperature counts as 0: argmax. */
export const GREEDY_BELOW = 1e-5;
const MASS_FLOOR = 1e-12;

/** logits float32 [n, V] at a temperature > 0 → probabilities [n, V]; removed tokens have exactly 0. */
export function truncatedProbabilities(logits: MlxArray, { temperature, topP, topK, minP }: Truncation): MlxArray {
  const vocab = shapeOf(logits)[1] ?? 0;
  const scaled = temperature === 1 ? logits : divide(logits, scalar(temperature, "float32"));
  let p = softmax(scaled, -1);
  // What survives the first cut, ties at its edge left out: they move no later cut. Selecting costs far less than sorting.
  let largest = p;
  if (topK > 0 && topK < vocab) {
    largest = topk(p, topK, -1);
    p = atLeast(p, smallest(largest));
  }
  if (topP < 1) p = atLeast(p, topPCutoff(largest, topP));
  if (minP > 0) p = atLeast(p, multiply(max(p, -1, true), scalar(minP, "float32")));
  return divide(p, maximum(sum(p, -1, true), scalar(MASS_FLOOR, "float32")));
}

/** p where it reaches the row's threshold [n, 1], else 0. */
function atLeast(p: MlxArray, threshold: MlxArray): MlxArray {
  return where(greaterEqual(p, threshold), p, scalar(0, "float32"));
}

/** Of each row: [n, 1]. */
function smallest(p: MlxArray): MlxArray {
  return negative(max(negative(p), -1, true));
}

/** Smallest probability still kept: a token stays while the mass *before* it is below topP, so the first always stays. */
function topPCutoff(p: MlxArray, topP: number): MlxArray {
  const sorted = negative(sort(negative(p), -1));
  const before = subtract(cumsum(sorted, -1), sorted);
  return smallest(where(less(before, scalar(topP, "float32")), sorted, scalar(2, "float32")));
}
