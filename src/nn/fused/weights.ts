/**
 * Weights of the fused backend. A matrix is packed once into the kernels' layout, in the file's own precision; the arrays
 * it came from are freed when its block is complete, so that a block that cannot be made leaves them to the caller.
 */
import { dtypeOf, evaluate, free, keep, type MlxArray, NONE, scope } from "../../mlx/array.ts";
import { freePackedMatrix, type PackedMatrix, packMatrix } from "../../mlx/cpu.ts";
import { astype } from "../../mlx/ops.ts";
import { freeMatrix, type LinearWeights, type Matrix, type NormWeights } from "../weights.ts";

/** A float32 copy for a constant that the kernels read; the same handle when it is one already. */
function widened(x: MlxArray): MlxArray {
  if (x === NONE || dtypeOf(x) === "float32") return x;
  return scope(() => {
    const wide = astype(x, "float32");
    evaluate([wide]);
    return keep(wide);
  });
}

function packed(matrix: Matrix, bias: MlxArray): PackedMatrix {
  const added = widened(bias);
  try {
    if (matrix.kind === "quantized") {
      const { weight, scales, biases, groupSize, bits, mode } = matrix;
      return packMatrix(weight, scales, biases, groupSize, bits, mode, added);
    }
    const narrow = dtypeOf(matrix.weight) === "float64";
    const weight = narrow ? widened(matrix.weight) : matrix.weight;
    try {
      return packMatrix(weight, NONE, NONE, 0, 0, null, added);
    } finally {
      if (narrow) free(weight);
    }
  } finally {
    if (added !== bias) free(added);
  }
}

/** Packs matrices together: all of them, or none and the error. The arrays are freed in the first case only. */
export function packLinears(weights: readonly LinearWeights[]): PackedMatrix[] {
  const done: PackedMatrix[] = [];
  try {
    for (const { matrix, bias } of weights) done.push(packed(matrix, bias));
  } catch (error) {
    for (const matrix of done) freePackedMatrix(matrix);
    throw error;
  }
  for (const { matrix, bias } of weights) {
    freeMatrix(matrix);
    if (bias !== NONE) free(bias);
  }
  return done;
}

export function packTable(matrix: Matrix): PackedMatrix {
  const table = packed(matrix, NONE);
  freeMatrix(matrix);
  return table;
}

/** A norm whose weight is float32, owned by the holder. */
export function widenNorm(norm: NormWeights): NormWeights {
  const weight = widened(norm.weight);
  if (weight !== norm.weight) free(norm.weight);
  return { weight, eps: norm.eps };
}

export function freeNorm(norm: NormWeights): void {
  free(norm.weight);
}
