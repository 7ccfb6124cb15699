/**
 * What a drafter borrows of its target: the embedding table and the head's matrix, as they are in memory (quantized ones
 * stay so). Nothing of the target's norms, scalings or caps of logits is applied (drafters.md §2).
 */
import type { MlxArray } from "../mlx/array.ts";

export interface TargetParts {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  /** Layers of the residual stream that can be tapped. */
  readonly layers: number;
  /** What the target multiplies looked-up rows with; 1 for most. */
  readonly embedScale: number;
  /** Rows of the table, unscaled: ids int32 or uint32 [R] → [R, hidden]. */
  embed(ids: MlxArray): MlxArray;
  /**
   * The head's product alone: x [R, hidden] → [R, vocabulary].
   * @param outputs columns that are needed, the first ones; those behind them may be missing
   */
  head(x: MlxArray, outputs?: number): MlxArray;
}
