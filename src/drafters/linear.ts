/**
 * The matrix products of a drafter, behind one small interface: a backend with products of its own replaces the factory
 * and touches nothing else.
 */
import type { MlxArray } from "../mlx/array.ts";
import { StockLinear } from "../nn/stock-linear.ts";
import type { LinearWeights } from "../nn/weights.ts";

export interface Linear {
  /** x [R, in] → [R, out] */
  apply(x: MlxArray): MlxArray;
  dispose(): void;
}

/** Makes a product of weights that it owns from then on. */
export type MakeLinear = (weights: LinearWeights) => Linear;

export const stockLinear: MakeLinear = (weights) => new StockLinear(weights);
