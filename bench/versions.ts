/** Versions of the peers that the benchmarks compare with. MLX is the one that the project links. */
import { native } from "../tools/setup/versions.ts";

export const peers = { mlx: native.mlx, mlxLm: "0.32.2" } as const;
