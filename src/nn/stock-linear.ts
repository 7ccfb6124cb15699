/**
 * Matrices and linears of the stock backend. A plain matrix is turned once, as a view on the same memory: a transpose in
 * every step would be a third of the small operations of a dense layer. The view is made at the first use, so that a
 * load that fails halfway has nothing of this file to free.
 */
import { free, keep, type MlxArray, NONE } from "../mlx/array.ts";
import { add, addmm, dequantize, matmul, quantizedMatmul, swapaxes, take } from "../mlx/ops.ts";
import { freeMatrix, type LinearWeights, type Matrix } from "./weights.ts";

export class StockMatrix {
  private turned = NONE;

  constructor(private readonly matrix: Matrix) {}

  /** x [R, in] · Mᵀ (+ bias [out], or NONE) → [R, out]. A plain one is one addmm (one rounding), a packed one adds after. */
  product(x: MlxArray, bias = NONE): MlxArray {
    const { matrix } = this;
    if (matrix.kind === "plain") {
      if (this.turned === NONE) this.turned = keep(swapaxes(matrix.weight, 0, 1));
      return bias === NONE ? matmul(x, this.turned) : addmm(bias, x, this.turned);
    }
    const { weight, scales, biases, groupSize, bits, mode } = matrix;
    const out = quantizedMatmul(x, weight, scales, biases, true, groupSize, bits, mode);
    return bias === NONE ? out : add(out, bias);
  }

  /** Rows at `ids`; a packed table is unpacked for those rows only. */
  rows(ids: MlxArray): MlxArray {
    if (this.matrix.kind === "plain") return take(this.matrix.weight, ids, 0);
    const { weight, scales, biases, groupSize, bits, mode } = this.matrix;
    const rowBiases = biases === NONE ? NONE : take(biases, ids, 0);
    return dequantize(take(weight, ids, 0), take(scales, ids, 0), rowBiases, groupSize, bits, mode);
  }

  dispose(): void {
    freeMatrix(this.matrix);
    if (this.turned !== NONE) free(this.turned);
    this.turned = NONE;
  }
}

export class StockLinear {
  private readonly matrix: StockMatrix;

  constructor(private readonly weights: LinearWeights) {
    this.matrix = new StockMatrix(weights.matrix);
  }

  /** x [R, in] → [R, out] */
  apply(x: MlxArray): MlxArray {
    return this.matrix.product(x, this.weights.bias);
  }

  dispose(): void {
    this.matrix.dispose();
    if (this.weights.bias !== NONE) free(this.weights.bias);
  }
}
