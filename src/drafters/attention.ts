/**
 * Attention of a drafter's layer: the slots of a block attend to the row's context and to the block itself. The same
 * projections make the context's keys and values from fused target rows. All rows of a batch go through each product
 * together; only the attention itself looks at one row at a time. drafters.md §2.
 */
import { concatenate, dim, free, int32Array, type MlxArray, NONE } from "../mlx/array.ts";
import { attention, multiply, reshape, rmsNorm, sigmoid, slice, transpose } from "../mlx/ops.ts";
import type { Linear } from "../nn/compute.ts";
import type { StepBatch } from "../nn/layer-state.ts";
import type { Rope } from "../nn/rope.ts";
import type { NormWeights } from "../nn/weights.ts";
import { type Context, ContextLayer, type KeysValues } from "./context.ts";
import { blockMask, shownRows } from "./masks.ts";
import type { BackboneSettings, LayerMask } from "./settings.ts";

export interface AttentionParts {
  /** [heads·D, H], twice as many rows when gated (query and gate of each head side by side). */
  readonly query: Linear;
  /** Keys above values, [2·Hkv·D, H]; keys alone when values come from them. */
  readonly keyValue: Linear;
  readonly output: Linear;
  readonly queryNorm: NormWeights;
  readonly keyNorm: NormWeights;
  /** [heads], or NONE. */
  readonly sinks: MlxArray;
}

/** One row's context in this layer. */
export interface AttendedContext {
  readonly context: Context;
  /** Position of the block's first slot. */
  readonly position: number;
}

/** A layer's attention, by stock ops (below) or by a backend's own (packed-attention.ts). */
export interface DraftAttention {
  /**
   * @param visible most rows that a later block can see; null: all
   * @param capacityMax most rows that are ever needed, a block included
   * @param first position of the first row to come
   */
  newContext(visible: number | null, capacityMax: number, first: number): Context;
  /** Appends the keys and values of fused rows c [n, H] at `position`; rows that no block will see are left out. */
  append(c: MlxArray, batch: StepBatch, context: Context, position: number, visible: number | null): void;
  /**
   * x [R·width, H] → [R·width, H].
   * @param batch the positions of all slots
   * @param limit see `shownRows`
   */
  apply(x: MlxArray, batch: StepBatch, rows: readonly AttendedContext[], width: number, limit: number | null): MlxArray;
  dispose(): void;
}

export class BlockAttention implements DraftAttention {
  constructor(
    private readonly settings: BackboneSettings,
    private readonly mask: LayerMask,
    /** Shared by all layers; not owned. */
    private readonly rope: Rope,
    private readonly parts: AttentionParts,
  ) {}

  newContext(visible: number | null, capacityMax: number, first: number): Context {
    return new ContextLayer(visible, capacityMax, first);
  }

  append(c: MlxArray, { total: count }: StepBatch, context: Context, position: number, visible: number | null): void {
    const used = visible === null ? count : Math.min(count, visible);
    if (used === 0) return;
    const rows = used === count ? c : slice(c, [count - used, 0], [count, this.settings.hidden]);
    const { keys, values } = this.keysValues(rows, 1, used);
    const first = position + count - used;
    own(context).append(this.rope.rotate(keys, first), values, first);
  }

  /** x is normed. */
  apply(x: MlxArray, _: StepBatch, rows: readonly AttendedContext[], width: number, limit: number | null): MlxArray {
    const { heads, headDim, scale } = this.settings;
    const positions = rows.length === 1 ? NONE : int32Array(rows.map((row) => row.position));
    const first = rows[0]?.position ?? 0;
    const rotated = (y: MlxArray) =>
      positions === NONE ? this.rope.rotate(y, first) : this.rope.rotateAt(y, positions);
    const { queries, gate } = this.queries(x, rows.length, width);
    const block = this.keysValues(x, rows.length, width);
    const q = rotated(queries);
    const k = rotated(block.keys);
    const outputs = rows.map(({ context }, i) => {
      const shown = shownRows(this.mask, context.held, limit);
      const seen = own(context).withBlock(rowOf(k, i, rows.length), rowOf(block.values, i, rows.length), shown);
      const mask = blockMask(this.mask, width, shown);
      const out = attention(rowOf(q, i, rows.length), seen.keys, seen.values, scale, mask, this.parts.sinks);
      return reshape(transpose(out, [0, 2, 1, 3]), [width, heads * headDim]);
    });
    const joined = concatenate(outputs, 0);
    return this.parts.output.apply(gate === null ? joined : multiply(joined, sigmoid(gate)));
  }

  /** x [R·n, H] → [R, heads, n, D], normed and not yet rotated; the gate as [R·n, heads·D]. */
  private queries(x: MlxArray, rows: number, count: number): { queries: MlxArray; gate: MlxArray | null } {
    const { heads, headDim, gatedQ } = this.settings;
    const both = this.parts.query.apply(x);
    const split = reshape(both, [rows, count, heads, gatedQ ? 2 * headDim : headDim]);
    const part = (from: number) => slice(split, [0, 0, 0, from], [rows, count, heads, from + headDim]);
    const { weight, eps } = this.parts.queryNorm;
    const normed = rmsNorm(gatedQ ? part(0) : split, weight, eps);
    return {
      queries: transpose(normed, [0, 2, 1, 3]),
      gate: gatedQ ? reshape(part(headDim), [rows * count, heads * headDim]) : null,
    };
  }

  /** x [R·n, H] → keys (normed, not yet rotated) and values [R, Hkv, n, D]. */
  private keysValues(x: MlxArray, rows: number, count: number): KeysValues {
    const { kvHeads, headDim, valuesFromKeys, family } = this.settings;
    const { weight, eps } = this.parts.keyNorm;
    const all = valuesFromKeys ? kvHeads : 2 * kvHeads;
    const split = transpose(reshape(this.parts.keyValue.apply(x), [rows, count, all, headDim]), [0, 2, 1, 3]);
    const heads = (from: number) => slice(split, [0, from, 0, 0], [rows, from + kvHeads, count, headDim]);
    const raw = valuesFromKeys ? split : heads(0);
    const values = valuesFromKeys ? split : heads(kvHeads);
    return {
      keys: rmsNorm(raw, weight, eps),
      values: family === "gemma4" ? rmsNorm(values, NONE, eps) : values,
    };
  }

  dispose(): void {
    const { query, keyValue, output, queryNorm, keyNorm, sinks } = this.parts;
    for (const linear of [query, keyValue, output]) linear.dispose();
    for (const norm of [queryNorm, keyNorm]) free(norm.weight);
    if (sinks !== NONE) free(sinks);
  }
}

function own(context: Context): ContextLayer {
  if (!(context instanceof ContextLayer)) throw new TypeError("the context was made by another kind of attention");
  return context;
}

/** Entry i of the first axis, which is kept; the array itself when it is the only one. */
function rowOf(x: MlxArray, index: number, rows: number): MlxArray {
  if (rows === 1) return x;
  return slice(x, [index, 0, 0, 0], [index + 1, dim(x, 1), dim(x, 2), dim(x, 3)]);
}
