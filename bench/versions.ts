/** Versions of the peers that the benchmarks compare with. MLX is the one that the project links. */
import { native } from "../tools/setup/versions.ts";

export const peers = {
  mlx: native.mlx,
  mlxLm: "0.32.2",
  mlxDspark: "0.20.3",
  /** Carries llama.cpp v0.5.0 (ggml 0.25.3) as source. */
  llamaCppPython: "0.3.36",
} as const;
