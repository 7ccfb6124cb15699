/**
 * DFlash 2's candidate selector: the best K tokens of each slot, a score for every pair of neighbouring candidates, and
 * the walks through these scores. All scores are computed before a walk, which then only looks up. Float32 throughout,
 * so that draws are the same on every device. drafters.md §4.
 */
import { concatenate, dim, dtypeOf, free, int32Array, type MlxArray, scalar } from "../mlx/array.ts";
import {
  add,
  argmax,
  argpartition,
  argsort,
  astype,
  broadcastTo,
  cumsum,
  divide,
  full,
  greaterEqual,
  lessEqual,
  log,
  logicalAnd,
  matmul,
  multiply,
  negative,
  putAlongAxis,
  reshape,
  slice,
  softmax,
  sort,
  sum,
  swapaxes,
  take,
  takeAlongAxis,
  view,
  zeros,
} from "../mlx/ops.ts";
import { categorical } from "../mlx/random.ts";
import type { Linear } from "../nn/compute.ts";
import { withinTable } from "./vocabulary.ts";

/** Lowest temperature that scores are divided by. */
const TEMPERATURE_MIN = 1e-5;

export interface Candidates {
  /** Ids, best first, lower id first on ties: int32 [m, K]. */
  readonly ids: MlxArray;
  /** Their logits, float32 [m, K]. */
  readonly logits: MlxArray;
}

/** A path through the candidates. */
export interface Walk {
  /** Ids, int32 [m]. */
  readonly ids: MlxArray;
  /** The distribution of each draw over its candidates, float32 [m, K]; null when nothing was drawn from it. */
  readonly q: MlxArray | null;
}

export interface SelectorParts {
  /** float32 [vocabulary, r] each: of the token before, and of the candidate. */
  readonly predecessors: MlxArray;
  readonly successors: MlxArray;
  /** H → r */
  readonly projection: Linear;
  readonly topK: number;
  readonly targetVocab: number;
}

export class Selector {
  constructor(private readonly parts: SelectorParts) {}

  /** The best tokens of logits [m, width]. */
  candidates(logits: MlxArray): Candidates {
    const [rows, width] = [dim(logits, 0), dim(logits, 1)];
    const k = Math.min(this.parts.topK, width);
    const best = k === width ? argsort(logits, -1) : argpartition(negative(logits), k - 1, -1);
    // By id first: the stable sort by value then leaves the lower id in front of its equals.
    const byId = sort(slice(best, [0, 0], [rows, k]), -1);
    const values = takeAlongAxis(logits, byId, 1);
    const order = argsort(negative(values), -1);
    const ids = view(takeAlongAxis(byId, order, 1), "int32");
    return { ids, logits: float32(takeAlongAxis(values, order, 1)) };
  }

  /**
   * score[s, p, c] of candidate c of slot s behind candidate p of the slot before (behind the anchor for slot 0).
   * @param unary float32 [m, K]: the candidates' own logits
   * @param hidden [m, H]
   * @param anchor int32 [1]
   */
  scores(ids: MlxArray, unary: MlxArray, hidden: MlxArray, anchor: MlxArray): MlxArray {
    const { predecessors, successors, projection, targetVocab } = this.parts;
    const [slots, k] = [dim(ids, 0), dim(ids, 1)];
    const first = broadcastTo(reshape(withinTable(anchor, dim(predecessors, 0), targetVocab), [1, 1]), [1, k]);
    const before = slots === 1 ? first : concatenate([first, slice(ids, [0, 0], [slots - 1, k])], 0);
    const weights = float32(projection.apply(hidden));
    const left = multiply(take(predecessors, before, 0), reshape(weights, [slots, 1, dim(weights, 1)]));
    const pairs = matmul(left, swapaxes(take(successors, ids, 0), 1, 2));
    return add(reshape(unary, [slots, 1, k]), pairs);
  }

  dispose(): void {
    free(this.parts.predecessors);
    free(this.parts.successors);
    this.parts.projection.dispose();
  }
}

/** The best continuation at every slot. */
export function greedyWalk(ids: MlxArray, scores: MlxArray): Walk {
  return { ids: chosen(ids, follow(argmax(scores, -1))), q: null };
}

/** Draws by inverting the cumulative distribution: u float32 [m], one number per slot. */
export function sampledWalk(ids: MlxArray, scores: MlxArray, temperature: number, u: MlxArray): Walk {
  const [slots, k] = [dim(scores, 0), dim(scores, 2)];
  const p = softmax(divide(scores, scalar(Math.max(temperature, TEMPERATURE_MIN), "float32")), -1);
  // The last candidate takes whatever rounding leaves of the mass: it needs no comparison.
  const sums = slice(cumsum(p, -1), [0, 0, 0], [slots, k, k - 1]);
  const next = sum(astype(lessEqual(sums, reshape(u, [slots, 1, 1])), "int32"), -1);
  const path = follow(next);
  const before = concatenate([int32Array([0]), slice(path, [0], [slots - 1])], 0);
  const rows = takeAlongAxis(p, broadcastTo(reshape(before, [slots, 1, 1]), [slots, 1, k]), 1);
  return { ids: chosen(ids, path), q: reshape(rows, [slots, k]) };
}

/** Each draw is the one that a target with this distribution makes over `vocab` ids with the same key. */
export function coupledWalk(
  ids: MlxArray,
  scores: MlxArray,
  temperature: number,
  keys: (slot: number) => MlxArray,
  vocab: number,
): Walk {
  const [slots, k] = [dim(scores, 0), dim(scores, 2)];
  const cold = divide(scores, scalar(Math.max(temperature, TEMPERATURE_MIN), "float32"));
  const drawn: MlxArray[] = [];
  let before = int32Array([0]);
  for (let slot = 0; slot < slots; slot++) {
    const row = take(reshape(slice(cold, [slot, 0, 0], [slot + 1, k, k]), [k, k]), before, 0);
    const own = slice(ids, [slot, 0], [slot + 1, k]);
    const wide = putAlongAxis(zeros([1, vocab], "float32"), own, softmax(row, -1), 1);
    const id = view(categorical(log(wide), -1, keys(slot)), "int32");
    drawn.push(id);
    const found = logicalAnd(lessEqual(own, id), greaterEqual(own, id));
    before = view(argmax(astype(found, "int32"), -1), "int32");
  }
  return { ids: concatenate(drawn, 0), q: null };
}

/** q over candidates [m, K] → over the vocabulary [m, vocab]. */
export function widenCandidates(ids: MlxArray, q: MlxArray, vocab: number): MlxArray {
  const nothing = full([dim(ids, 0), vocab], scalar(0, "float32"), "float32");
  return putAlongAxis(nothing, ids, q, 1);
}

/** next[s, p] is where a walk goes from p: the indices of the walk from 0 on, int32 [m]. */
function follow(next: MlxArray): MlxArray {
  const [slots, k] = [dim(next, 0), dim(next, 1)];
  const steps = dtypeOf(next) === "uint32" ? view(next, "int32") : next;
  const path: MlxArray[] = [];
  let at = reshape(slice(steps, [0, 0], [1, 1]), [1]);
  path.push(at);
  for (let slot = 1; slot < slots; slot++) {
    at = take(reshape(slice(steps, [slot, 0], [slot + 1, k]), [k]), at, 0);
    path.push(at);
  }
  return concatenate(path, 0);
}

function chosen(ids: MlxArray, path: MlxArray): MlxArray {
  const slots = dim(ids, 0);
  return reshape(takeAlongAxis(ids, reshape(path, [slots, 1]), 1), [slots]);
}

function float32(x: MlxArray): MlxArray {
  return dtypeOf(x) === "float32" ? x : astype(x, "float32");
}
