/** Weights as a model file hands them to a compute backend. Every handle is owned by the holder of the record. */
import { free, type MlxArray, NONE } from "../mlx/array.ts";
import type { QuantMode } from "../mlx/ops.ts";

/** A matrix [out, in] as stored. */
export type Matrix =
  | { readonly kind: "plain"; readonly weight: MlxArray }
  | {
      readonly kind: "quantized";
      /** uint32 [out, in·bits/32] */
      readonly weight: MlxArray;
      /** [out, in/groupSize] */
      readonly scales: MlxArray;
      /** As scales; NONE for the floating-point modes. */
      readonly biases: MlxArray;
      readonly groupSize: number;
      readonly bits: number;
      readonly mode: QuantMode;
    };

export interface LinearWeights {
  readonly matrix: Matrix;
  /** [out], or NONE. */
  readonly bias: MlxArray;
  readonly inFeatures: number;
  readonly outFeatures: number;
}

export interface NormWeights {
  /** [features] */
  readonly weight: MlxArray;
  readonly eps: number;
}

/** Frees the handles of a matrix. */
export function freeMatrix(matrix: Matrix): void {
  free(matrix.weight);
  if (matrix.kind === "plain") return;
  free(matrix.scales);
  if (matrix.biases !== NONE) free(matrix.biases);
}
