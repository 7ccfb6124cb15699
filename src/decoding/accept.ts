/**
 * Which drafts of a verify block stand, and the token behind them, on the device (decoding.md §3, §4). Every form gives
 * tokens by the target's own law, whatever the drafts were: greedy and coupled by equality with the target's choice,
 * sampled by rejection (Leviathan et al. 2023; Chen et al. 2023). A leading axis of n blocks of the same length m; a
 * request's block has n = 1. Lazy: `settleAcceptance` is the one host sync.
 */
import {
  concatenate,
  evaluate,
  free,
  int32Array,
  keep,
  type MlxArray,
  scalar,
  shapeOf,
  toUint32,
} from "../mlx/array.ts";
import {
  add,
  arange,
  argmax,
  astype,
  broadcastTo,
  divide,
  greater,
  greaterEqual,
  less,
  log,
  maximum,
  multiply,
  putAlongAxis,
  reshape,
  slice,
  subtract,
  sum,
  take,
  takeAlongAxis,
  where,
  zeros,
} from "../mlx/ops.ts";
import { categorical } from "../mlx/random.ts";
import type { DraftLaw } from "./draft-law.ts";

export interface Acceptance {
  /** uint32 [n]: accepted drafts of each block. */
  readonly accepted: MlxArray;
  /** uint32 [n, m + 1]: the committed tokens stand first, accepted + 1 of them; what follows means nothing. */
  readonly tokens: MlxArray;
}

const Q_FLOOR = 1e-9;
/** Below this p and q are equal up to rounding, and the residual would be noise. */
const RESIDUAL_MASS_MIN = 1e-8;

/**
 * Drafts stand as far as they equal the target's own choice at their place.
 * @param draft int32 or uint32 [n, m], m ≥ 0
 * @param chosen the target's argmax or keyed draw after each row of the verify, uint32 [n, m + 1]
 */
export function acceptEqual(draft: MlxArray, chosen: MlxArray): Acceptance {
  const [blocks = 1, rows = 1] = shapeOf(chosen);
  const same = slice(chosen, [0, 0], [blocks, rows - 1]);
  const wrong = add(astype(greater(draft, same), "int32"), astype(less(draft, same), "int32"));
  return { accepted: firstSet(wrong, blocks), tokens: chosen };
}

export interface SampledBlock {
  /** int32 or uint32 [n, m], m ≥ 0. */
  readonly draft: MlxArray;
  /**
   * The target's law after each row of the verify, as it is drawn from (truncated, normalized): float32 [n, m + 1, V].
   * [n, m, V] where the last draft has probability 0 in it: that draft was not fed, for it cannot stand.
   */
  readonly target: MlxArray;
  readonly law: DraftLaw;
  /** float32 [n, m] uniform in [0, 1). */
  readonly uniform: MlxArray;
  /** Key of the draw of the replacement or bonus token. */
  readonly key: MlxArray;
}

/** Drafts stand with probability min(1, p/q); behind them a draw from the residual, or from the target's last row. */
export function acceptSampled(block: SampledBlock): Acceptance {
  const accepted = acceptedCount(block);
  const law = replacementLaw(block, accepted);
  const next = categorical(log(law), -1, block.key);
  return { accepted, tokens: withReplacement(block, accepted, next) };
}

/** uint32 [n]: drafts before the first that fails its test. */
export function acceptedCount({ draft, target, law, uniform }: SampledBlock): MlxArray {
  const [blocks = 1, , vocab = 0] = shapeOf(target);
  const [, drafts = 0] = shapeOf(draft);
  const at = reshape(draft, [blocks, drafts, 1]);
  const p = takeAlongAxis(slice(target, [0, 0, 0], [blocks, drafts, vocab]), at, -1);
  const ratio = law === null ? p : divide(p, maximum(takeAlongAxis(law, at, -1), scalar(Q_FLOOR, "float32")));
  const failed = greaterEqual(uniform, reshape(ratio, [blocks, drafts]));
  return firstSet(astype(failed, "int32"), blocks);
}

/** The law of the token behind the accepted drafts, not normalized: float32 [n, V]. */
export function replacementLaw({ draft, target, law }: SampledBlock, accepted: MlxArray): MlxArray {
  const [blocks = 1, , vocab = 0] = shapeOf(target);
  const [, drafts = 0] = shapeOf(draft);
  const p = rowsAt(target, accepted);
  if (drafts === 0) return p;
  const last = int32Array([drafts - 1]);
  const failedAt = where(less(accepted, scalar(drafts, "int32")), astype(accepted, "int32"), last);
  const residual =
    law === null
      ? putAlongAxis(
          p,
          takeAlongAxis(astype(draft, "int32"), reshape(failedAt, [blocks, 1]), 1),
          zeros([blocks, 1], "float32"),
          -1,
        )
      : maximum(subtract(p, rowsAt(law, failedAt)), scalar(0, "float32"));
  const enough = greater(sum(residual, -1, true), scalar(RESIDUAL_MASS_MIN, "float32"));
  const failed = less(reshape(accepted, [blocks, 1]), scalar(drafts, "int32"));
  // A draft that failed and a residual with mass: both conditions as one product of 0 and 1.
  const both = multiply(astype(enough, "float32"), astype(failed, "float32"));
  return where(greater(broadcastTo(both, [blocks, vocab]), scalar(0, "float32")), residual, p);
}

/** Row `at[b]` of each block: x [n, r, V], at [n] → [n, V]. */
function rowsAt(x: MlxArray, at: MlxArray): MlxArray {
  const [blocks = 1, rows = 1, vocab = 0] = shapeOf(x);
  const index = astype(at, "int32");
  const flat = blocks === 1 ? index : add(index, multiply(arange(0, blocks, "int32"), scalar(rows, "int32")));
  return take(reshape(x, [blocks * rows, vocab]), flat, 0);
}

/** Index of the first 1 in each row of int32 [n, m] of 0 and 1; m where there is none. */
function firstSet(marks: MlxArray, blocks: number): MlxArray {
  const end = int32Array(new Int32Array(blocks).fill(1), [blocks, 1]);
  return argmax(concatenate([marks, end], 1), -1);
}

function withReplacement({ draft }: SampledBlock, accepted: MlxArray, next: MlxArray): MlxArray {
  const [blocks = 1] = shapeOf(draft);
  const padded = concatenate([astype(draft, "uint32"), zeros([blocks, 1], "uint32")], 1);
  return putAlongAxis(padded, reshape(accepted, [blocks, 1]), reshape(next, [blocks, 1]), 1);
}

/** Takes an acceptance out of the open scope: to be settled or discarded later. */
export function keepAcceptance({ accepted, tokens }: Acceptance): Acceptance {
  return { accepted: keep(accepted), tokens: keep(tokens) };
}

/** Waits. The committed tokens of each block: accepted drafts, then one more. The arrays stay the holder's. */
export function readAcceptance({ accepted, tokens }: Acceptance): Uint32Array[] {
  evaluate([accepted, tokens]);
  const [, width = 1] = shapeOf(tokens);
  const ids = toUint32(tokens);
  return [...toUint32(accepted)].map((count, block) => ids.subarray(block * width, block * width + count + 1));
}

/** Frees a kept acceptance. */
export function discardAcceptance({ accepted, tokens }: Acceptance): void {
  free(accepted);
  free(tokens);
}
