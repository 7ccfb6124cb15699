/**
 * The backend of stock MLX ops: runs on every device, in the dtype of its inputs, and is the reference that fused
 * backends are checked against.
 */
import { concatenate, dtypeOf, free, type MlxArray, scalar } from "../mlx/array.ts";
import { add, astype, multiply, reshape, rmsNorm, sigmoid, slice, tanh, transpose } from "../mlx/ops.ts";
import type { Activation, Compute, Embedding, SelfAttention, SelfAttentionSpec } from "./compute.ts";
import { type AttendingState, canAttend, type StepBatch } from "./layer-state.ts";
import { makeRope, type Rope } from "./rope.ts";
import { StockLinear, StockMatrix } from "./stock-linear.ts";
import type { Matrix, NormWeights } from "./weights.ts";

export function activate(x: MlxArray, activation: Activation): MlxArray {
  if (activation === "silu") return multiply(x, sigmoid(x));
  const dtype = dtypeOf(x);
  const cubic = multiply(multiply(multiply(x, x), x), scalar(0.044715, dtype));
  const inner = multiply(add(x, cubic), scalar(Math.sqrt(2 / Math.PI), dtype));
  return multiply(multiply(x, scalar(0.5, dtype)), add(tanh(inner), scalar(1, dtype)));
}

function freeNorm(norm: NormWeights | null): void {
  if (norm !== null) free(norm.weight);
}

/**
 * `activationDtype`: what a looked-up row is cast to; null keeps the table's own (MLX dequantizes the floating-point
 * modes to bfloat16 whatever is wanted).
 */
export function stockCompute(activationDtype: "float32" | null): Compute {
  return {
    name: "stock",
    stateLayout: "arrays",
    embedding: (table) => stockEmbedding(table, activationDtype),
    linear: (weights) => new StockLinear(weights),
    norm: (norm) => ({
      apply: (x) => rmsNorm(x, norm.weight, norm.eps),
      dispose: () => freeNorm(norm),
    }),
    projectionAdd: (weights) => {
      const linear = new StockLinear(weights);
      return {
        apply: (x, residual) => add(residual, linear.apply(x)),
        dispose: () => linear.dispose(),
      };
    },
    feedForward: ({ norm, activation, ...weights }) => {
      const [gate, up, down] = [weights.gate, weights.up, weights.down].map((linear) => new StockLinear(linear)) as [
        StockLinear,
        StockLinear,
        StockLinear,
      ];
      return {
        apply: (x) => {
          const input = rmsNorm(x, norm.weight, norm.eps);
          return add(x, down.apply(multiply(activate(gate.apply(input), activation), up.apply(input))));
        },
        dispose: () => {
          freeNorm(norm);
          for (const linear of [gate, up, down]) linear.dispose();
        },
      };
    },
    selfAttention: (spec) => new StockSelfAttention(spec),
    contextAttention: null,
    greedyWalk: () => null,
    head: (norm, weights, embedding) => {
      const own = weights === null ? null : new StockLinear(weights);
      const normed = (x: MlxArray) => rmsNorm(x, norm.weight, norm.eps);
      const project = (x: MlxArray) => (own === null ? embedding.project(x) : own.apply(x));
      return {
        norm: normed,
        project,
        apply: (x) => project(normed(x)),
        dispose: () => {
          freeNorm(norm);
          own?.dispose();
        },
      };
    },
  };
}

function stockEmbedding(weights: Matrix, activationDtype: "float32" | null): Embedding {
  const table = new StockMatrix(weights);
  return {
    lookup: (ids) => {
      const rows = table.rows(ids);
      if (activationDtype === null || dtypeOf(rows) === activationDtype) return rows;
      return astype(rows, activationDtype);
    },
    project: (x) => table.product(x),
    dispose: () => table.dispose(),
  };
}

class StockSelfAttention implements SelfAttention {
  private readonly rope: Rope | null;
  private readonly q: StockLinear;
  private readonly k: StockLinear;
  private readonly v: StockLinear;
  private readonly o: StockLinear;

  constructor(private readonly spec: SelfAttentionSpec) {
    this.q = new StockLinear(spec.q);
    this.k = new StockLinear(spec.k);
    this.v = new StockLinear(spec.v);
    this.o = new StockLinear(spec.o);
    this.rope = spec.rope === null ? null : makeRope(spec.rope);
  }

  apply(x: MlxArray, batch: StepBatch, layer: number): MlxArray {
    const { norm } = this.spec;
    const input = rmsNorm(x, norm.weight, norm.eps);
    const [q, k, v] = [this.q.apply(input), this.k.apply(input), this.v.apply(input)];
    return add(x, this.o.apply(this.attend(q, k, v, batch, layer)));
  }

  private attend(q: MlxArray, k: MlxArray, v: MlxArray, batch: StepBatch, layer: number): MlxArray {
    const [row] = batch.rows;
    if (batch.rows.length > 1 || row === undefined) return this.ragged(q, k, v, batch, layer);
    const { heads, kvHeads, headDim, scale, qNorm, kNorm } = this.spec;
    const rotated = (x: MlxArray, count: number, norm: NormWeights | null) => {
      const split = normed(reshape(x, [1, batch.total, count, headDim]), norm);
      const byHead = transpose(split, [0, 2, 1, 3]);
      return this.rope === null ? byHead : this.rope.rotate(byHead, row.offset);
    };
    const values = transpose(reshape(v, [1, batch.total, kvHeads, headDim]), [0, 2, 1, 3]);
    const out = stateOf(batch, 0, layer).attend(rotated(q, heads, qNorm), rotated(k, kvHeads, kNorm), values, scale);
    return reshape(transpose(out, [0, 2, 1, 3]), [batch.total, heads * headDim]);
  }

  /** Tokens as batch for the rotation, then each row against its own state. */
  private ragged(q: MlxArray, k: MlxArray, v: MlxArray, batch: StepBatch, layer: number): MlxArray {
    const { heads, kvHeads, headDim, scale, qNorm, kNorm } = this.spec;
    const rotateFlat = (x: MlxArray, count: number, norm: NormWeights | null) => {
      const split = normed(reshape(x, [batch.total, count, 1, headDim]), norm);
      return this.rope?.flat ? this.rope.rotateAt(split, batch.positions()) : split;
    };
    const queries = rotateFlat(q, heads, qNorm);
    const keys = rotateFlat(k, kvHeads, kNorm);
    const values = reshape(v, [batch.total, kvHeads, 1, headDim]);
    const outputs: MlxArray[] = [];
    let start = 0;
    for (const [index, row] of batch.rows.entries()) {
      const part = (x: MlxArray, count: number) =>
        transpose(slice(x, [start, 0, 0, 0], [start + row.count, count, 1, headDim]), [2, 1, 0, 3]);
      const late = (x: MlxArray) => (this.rope === null || this.rope.flat ? x : this.rope.rotate(x, row.offset));
      const state = stateOf(batch, index, layer);
      const out = state.attend(late(part(queries, heads)), late(part(keys, kvHeads)), part(values, kvHeads), scale);
      outputs.push(reshape(transpose(out, [0, 2, 1, 3]), [row.count, heads * headDim]));
      start += row.count;
    }
    return concatenate(outputs, 0);
  }

  dispose(): void {
    this.rope?.dispose();
    const { norm, qNorm, kNorm } = this.spec;
    for (const weights of [norm, qNorm, kNorm]) freeNorm(weights);
    for (const linear of [this.q, this.k, this.v, this.o]) linear.dispose();
  }
}

function normed(x: MlxArray, norm: NormWeights | null): MlxArray {
  return norm === null ? x : rmsNorm(x, norm.weight, norm.eps);
}

function stateOf(batch: StepBatch, row: number, layer: number): AttendingState {
  const state = batch.rows[row]?.states[layer];
  if (state === undefined) throw new RangeError(`row ${row} of the step has no state for layer ${layer}`);
  if (!canAttend(state)) throw new TypeError("the row's states were made for another compute backend");
  return state;
}
