/**
 * Attention of a drafter's blocks on the fused backend: keys and values of context rows go into the sequence's store, the
 * slots of a block attend to them and to each other without being stored. One product and one primitive each; only what
 * few drafters do (gates, values from keys) is put together from stock ops.
 */
import { concatenate, dim, free, type MlxArray, NONE } from "../../mlx/array.ts";
import {
  type AttendedRow,
  type AttentionPlan,
  freeAttentionPlan,
  freePackedMatrix,
  newAttentionPlan,
  normMatmul,
  type PackedMatrix,
  packedMatmul,
  packedNorm,
} from "../../mlx/cpu.ts";
import { appendPacked, attendBlocks, type BlockVisibility } from "../../mlx/cpu-draft.ts";
import { multiply, reshape, rmsNorm, sigmoid, slice } from "../../mlx/ops.ts";
import type { ContextAttention, ContextAttentionSpec } from "../compute.ts";
import type { StepBatch } from "../layer-state.ts";
import type { NormWeights } from "../weights.ts";
import { RopeTables } from "./rope-tables.ts";
import { freeNorm, packLinears, widenNorm } from "./weights.ts";

export class FusedContextAttention implements ContextAttention {
  private readonly norm: NormWeights | null;
  private readonly plan: AttentionPlan;
  private readonly query: PackedMatrix;
  private readonly keyValue: PackedMatrix;
  private readonly ropes: RopeTables;

  constructor(private readonly spec: ContextAttentionSpec) {
    const { heads, kvHeads, headDim, scale, rope, sinks } = spec;
    const [qNorm, kNorm] = [spec.qNorm, spec.kNorm].map((norm) => (norm === null ? null : widenNorm(norm)));
    this.plan = newAttentionPlan({
      heads,
      kvHeads,
      headDim,
      scale,
      ropeDims: rope.dims,
      interleaved: rope.traditional,
      qNorm: qNorm?.weight ?? NONE,
      qEps: qNorm?.eps ?? 0,
      kNorm: kNorm?.weight ?? NONE,
      kEps: kNorm?.eps ?? 0,
      softCap: 0,
      sinks,
    });
    [this.query, this.keyValue] = packLinears([spec.q, spec.keyValue]) as [PackedMatrix, PackedMatrix];
    this.norm = spec.norm === null ? null : widenNorm(spec.norm);
    this.ropes = new RopeTables(rope);
    for (const norm of [qNorm, kNorm]) if (norm) freeNorm(norm);
    if (sinks !== NONE) free(sinks);
  }

  append(c: MlxArray, batch: StepBatch, row: AttendedRow): MlxArray {
    return appendPacked(this.plan, this.keysValues(packedMatmul(c, this.keyValue)), this.ropes.of(batch), [row]);
  }

  attend(x: MlxArray, batch: StepBatch, rows: readonly AttendedRow[], visible: BlockVisibility): MlxArray {
    const { gated, valuesFromKeys, valueEps } = this.spec;
    const rope = this.ropes.of(batch);
    if (this.norm !== null && !gated && !valuesFromKeys && valueEps === null) {
      const qkv = normMatmul(x, this.norm.weight, this.norm.eps, this.query, this.keyValue);
      return attendBlocks(this.plan, qkv, rope, rows, visible);
    }
    const input = this.norm === null ? x : packedNorm(x, this.norm.weight, this.norm.eps);
    const { queries, gate } = this.queries(packedMatmul(input, this.query));
    const qkv = concatenate([queries, this.keysValues(packedMatmul(input, this.keyValue))], 1);
    const out = attendBlocks(this.plan, qkv, rope, rows, visible);
    return gate === null ? out : multiply(out, sigmoid(gate));
  }

  /** Of a product [n, …]: queries [n, heads·D] and the gate of each. */
  private queries(product: MlxArray): { queries: MlxArray; gate: MlxArray | null } {
    const { heads, headDim, gated } = this.spec;
    if (!gated) return { queries: product, gate: null };
    const count = dim(product, 0);
    const split = reshape(product, [count, heads, 2 * headDim]);
    const part = (from: number) =>
      reshape(slice(split, [0, 0, from], [count, heads, from + headDim]), [count, heads * headDim]);
    return { queries: part(0), gate: part(headDim) };
  }

  /** Of a product [n, …]: keys and behind them values, [n, 2·kvHeads·D]. */
  private keysValues(product: MlxArray): MlxArray {
    const { kvHeads, headDim, valuesFromKeys, valueEps } = this.spec;
    if (!valuesFromKeys && valueEps === null) return product;
    const [count, width] = [dim(product, 0), kvHeads * headDim];
    const part = (from: number) => slice(product, [0, from], [count, from + width]);
    const keys = valuesFromKeys ? product : part(0);
    const values = valuesFromKeys ? product : part(width);
    if (valueEps === null) return concatenate([keys, values], 1);
    const normed = rmsNorm(reshape(values, [count, kvHeads, headDim]), NONE, valueEps);
    return concatenate([keys, reshape(normed, [count, width])], 1);
  }

  dispose(): void {
    if (this.norm !== null) freeNorm(this.norm);
    freeAttentionPlan(this.plan);
    freePackedMatrix(this.query);
    freePackedMatrix(this.keyValue);
  }
}
