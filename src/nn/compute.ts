/**
 * The blocks from which a model file builds its forward, each a unit that a device may fuse. A backend (stock MLX ops,
 * fused CPU primitives, Metal kernels) implements all of them; a model file knows only this interface. A backend packs
 * weights when a block is made and owns them from then on.
 *
 * Activations are flat: x [R, features], one row for each token of the step, whichever sequence it belongs to.
 */
import type { MlxArray } from "../mlx/array.ts";
import type { StateLayout, StepBatch } from "./layer-state.ts";
import type { RopeSpec } from "./rope.ts";
import type { LinearWeights, Matrix, NormWeights } from "./weights.ts";

/** Frees the weights that the block owns. */
export interface Block {
  dispose(): void;
}

export interface Embedding extends Block {
  /** ids int32 or uint32 [R] → [R, features] */
  lookup(ids: MlxArray): MlxArray;
  /** x [R, features] → logits [R, vocabulary]: the table used as a head. */
  project(x: MlxArray): MlxArray;
}

/** x [R, in] → linear(x) [R, out]. */
export interface Linear extends Block {
  apply(x: MlxArray): MlxArray;
}

/** x [R, in], residual [R, out] → residual + linear(x). */
export interface ProjectionAdd extends Block {
  apply(x: MlxArray, residual: MlxArray): MlxArray;
}

/** x [R, in] → act(gate(norm(x))) · up(norm(x)) [R, hidden]. */
export interface GatedUnit extends Block {
  apply(x: MlxArray): MlxArray;
}

/** x [R, in] → logits [R, vocabulary]. */
export interface Head extends Block {
  /** The final norm alone. */
  norm(x: MlxArray): MlxArray;
  /** The product alone: what a drafter with a norm of its own borrows. */
  project(x: MlxArray): MlxArray;
  apply(x: MlxArray): MlxArray;
}

/** Everything of self-attention but the output projection. */
export interface SelfAttentionSpec {
  readonly norm: NormWeights;
  readonly q: LinearWeights;
  readonly k: LinearWeights;
  readonly v: LinearWeights;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly scale: number;
  readonly rope: RopeSpec | null;
  /** Per-head norms before the rotation. */
  readonly qNorm: NormWeights | null;
  readonly kNorm: NormWeights | null;
}

export interface SelfAttention extends Block {
  /**
   * x [R, in] → attention of norm(x) [R, heads·headDim]; appends keys and values to each row's state of `layer`.
   */
  apply(x: MlxArray, batch: StepBatch, layer: number): MlxArray;
}

export type Activation = "silu" | "gelu_tanh";

export interface Compute {
  /** Shown by `/health` and `doctor`, e.g. "stock". */
  readonly name: string;
  /** What its self-attention takes: states that attend with arrays, or packed ones. */
  readonly stateLayout: StateLayout;
  embedding(table: Matrix): Embedding;
  linear(linear: LinearWeights): Linear;
  projectionAdd(linear: LinearWeights): ProjectionAdd;
  gatedUnit(norm: NormWeights, gate: LinearWeights, up: LinearWeights, activation: Activation): GatedUnit;
  selfAttention(spec: SelfAttentionSpec): SelfAttention;
  /** `head` null: tied, the logits are `embedding.project`. */
  head(norm: NormWeights, head: LinearWeights | null, embedding: Embedding): Head;
}
