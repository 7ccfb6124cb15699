/**
 * The blocks from which a model file builds its forward, each a unit that a device may fuse. A backend (stock MLX ops,
 * fused CPU primitives, Metal kernels) implements all of them; a model file knows only this interface. A backend packs
 * weights when a block is made and owns them from then on.
 *
 * Activations are flat: x [R, features], one row for each token of the step, whichever sequence it belongs to.
 */
import type { MlxArray } from "../mlx/array.ts";
import type { AttendedRow } from "../mlx/cpu.ts";
import type { BlockVisibility } from "../mlx/cpu-draft.ts";
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
  /**
   * x [R, features] → logits [R, vocabulary]: the table used as a head.
   * @param outputs columns that are needed, the first ones; a backend may compute no others
   */
  project(x: MlxArray, outputs?: number): MlxArray;
}

/** x [R, in] → linear(x) [R, out]. */
export interface Linear extends Block {
  apply(x: MlxArray): MlxArray;
}

/** x [R, in], residual [R, out] → residual + linear(x). */
export interface ProjectionAdd extends Block {
  apply(x: MlxArray, residual: MlxArray): MlxArray;
}

export interface FeedForwardSpec {
  readonly norm: NormWeights;
  readonly gate: LinearWeights;
  readonly up: LinearWeights;
  readonly down: LinearWeights;
  readonly activation: Activation;
}

/** x [R, features] → x + down(act(gate(norm(x))) · up(norm(x))) [R, features]. */
export interface FeedForward extends Block {
  apply(x: MlxArray): MlxArray;
}

/** x [R, features] → its RMS norm. */
export interface Norm extends Block {
  apply(x: MlxArray): MlxArray;
}

/** x [R, in] → logits [R, vocabulary]. */
export interface Head extends Block {
  /** The final norm alone. */
  norm(x: MlxArray): MlxArray;
  /** The product alone: what a drafter with a norm of its own borrows. `outputs` as for an embedding. */
  project(x: MlxArray, outputs?: number): MlxArray;
  apply(x: MlxArray): MlxArray;
}

export interface SelfAttentionSpec {
  readonly norm: NormWeights;
  readonly q: LinearWeights;
  readonly k: LinearWeights;
  readonly v: LinearWeights;
  readonly o: LinearWeights;
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
   * x [R, features] → x + o(attention of norm(x)) [R, features]; appends keys and values to each row's state of `layer`.
   */
  apply(x: MlxArray, batch: StepBatch, layer: number): MlxArray;
}

/** Attention of blocks that are not appended, over keys and values that other rows make: what a drafter does. */
export interface ContextAttentionSpec extends Omit<SelfAttentionSpec, "norm" | "k" | "v" | "o" | "rope"> {
  /** Of a block's input; null: it comes normed. */
  readonly norm: NormWeights | null;
  /** The projection of queries gives each head's query and gate; sigmoid(gate) multiplies the head's output. */
  readonly gated: boolean;
  /** Keys above values; keys alone when values come from them. */
  readonly keyValue: LinearWeights;
  readonly valuesFromKeys: boolean;
  /** Epsilon of the values' norm, which has no weight; null: they are not normed. */
  readonly valueEps: number | null;
  readonly rope: RopeSpec;
  /** [heads], or NONE. */
  readonly sinks: MlxArray;
}

export interface ContextAttention extends Block {
  /**
   * Appends the keys and values of one sequence's tokens, from c [count, in] as it is; `batch` gives their positions.
   * Returns the array that stands for it, for the row's next `after`.
   */
  append(c: MlxArray, batch: StepBatch, row: AttendedRow): MlxArray;
  /** x [R, in], the slots of all blocks → [R, heads·headDim]; `batch` gives their positions. */
  attend(x: MlxArray, batch: StepBatch, rows: readonly AttendedRow[], visible: BlockVisibility): MlxArray;
}

/**
 * A greedy walk of a plain Markov head over a draft as one op: base [count, width or more] float32, anchor int32 or uint32
 * [1] → ids uint32 [count], the first largest logit of each step among `width` columns, and the features of the id before
 * each, [count, rank].
 */
export type GreedyWalk = (base: MlxArray, anchor: MlxArray, width: number) => { ids: MlxArray; features: MlxArray };

export type Activation = "silu" | "gelu_tanh";

export interface Compute {
  /** Shown by `/health` and `doctor`, e.g. "stock". */
  readonly name: string;
  /** What its self-attention takes: states that attend with arrays, or packed ones. */
  readonly stateLayout: StateLayout;
  embedding(table: Matrix): Embedding;
  linear(linear: LinearWeights): Linear;
  norm(norm: NormWeights): Norm;
  projectionAdd(linear: LinearWeights): ProjectionAdd;
  feedForward(spec: FeedForwardSpec): FeedForward;
  selfAttention(spec: SelfAttentionSpec): SelfAttention;
  /** `head` null: tied, the logits are `embedding.project`. */
  head(norm: NormWeights, head: LinearWeights | null, embedding: Embedding): Head;
  /** null: made of other blocks (drafters/attention.ts). */
  readonly contextAttention: ((spec: ContextAttentionSpec) => ContextAttention) | null;
  /** Over W1 [ids, rank] and W2 [ids, rank], which stay their holder's; null: step by step (drafters/dspark.ts). */
  greedyWalk(before: Embedding, after: Linear): GreedyWalk | null;
}
