/**
 * The compute backend of a device: on a CPU the fused one, everywhere else stock MLX ops. MLX_DSPARK_CPU=stock keeps the
 * stock ops on a CPU too, where they are the checker: slow, and in float32 since MLX's packed products on a CPU sum in
 * the activations' own precision.
 */
import { device } from "../mlx/native.ts";
import type { Compute } from "./compute.ts";
import { fusedCompute } from "./fused/compute.ts";
import { stockCompute } from "./stock.ts";

export interface ComputeChoice {
  readonly compute: Compute;
  /** What weights are widened to at load; null keeps the file's. */
  readonly dtype: "float32" | null;
  /** For people, e.g. "cpu (fused avx512, float32)". */
  readonly description: string;
}

/** @throws RangeError for another value of MLX_DSPARK_CPU than "stock" or "fused" */
export function chooseCompute(environment: Readonly<Record<string, string | undefined>>): ComputeChoice {
  if (device === "metal") return { compute: stockCompute(null), dtype: null, description: "metal (stock)" };
  const wanted = environment.MLX_DSPARK_CPU || "fused";
  if (wanted === "stock") {
    return { compute: stockCompute("float32"), dtype: "float32", description: "cpu (stock, float32)" };
  }
  if (wanted !== "fused") throw new RangeError(`MLX_DSPARK_CPU=${wanted}: known are fused and stock`);
  const compute = fusedCompute();
  return { compute, dtype: null, description: `cpu (${compute.name}, float32)` };
}
