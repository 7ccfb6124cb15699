/** The two platforms that executables are made for, and where the parts of each are. All paths are absolute. */
import { join } from "node:path";
import { native } from "../setup/versions.ts";

export const root = join(import.meta.dir, "../..");
export const deps = join(root, "build/deps");

export interface Platform {
  readonly name: "linux" | "macos";
  /** The unpacked MLX wheel. */
  readonly wheel: string;
  /** CMake's build folder of the shim. */
  readonly shimBuild: string;
  readonly shim: string;
  /** The staged folder, laid out as the wheel is, so that the libraries' run paths resolve. */
  readonly native: string;
  readonly executable: string;
  /** What of the wheel is staged, as globs below it. */
  readonly libraries: readonly string[];
}

/** Linux on the machine's own architecture. */
const linux: Platform = {
  name: "linux",
  wheel: join(deps, "mlx"),
  shimBuild: join(root, "build/shim"),
  shim: "libmlx_dspark_shim.so",
  native: join(root, "build/native"),
  executable: join(root, "dist/mlx-dspark"),
  libraries: ["mlx/lib/libmlx.so", "mlx_cpu.libs/*.so*"],
};

/** macOS on Apple silicon; on Linux it is built beside the Linux one. */
const macos: Platform =
  process.platform === "darwin"
    ? {
        name: "macos",
        wheel: join(deps, "mlx"),
        shimBuild: join(root, "build/shim"),
        shim: "libmlx_dspark_shim.dylib",
        native: join(root, "build/native"),
        executable: join(root, "dist/mlx-dspark"),
        libraries: ["mlx/lib/*.dylib", "mlx/lib/mlx.metallib"],
      }
    : {
        name: "macos",
        wheel: join(deps, "mlx-macos"),
        shimBuild: join(root, "build/shim-macos"),
        shim: "libmlx_dspark_shim.dylib",
        native: join(root, "build/native-macos"),
        executable: join(root, "dist/macos-arm64/mlx-dspark"),
        libraries: ["mlx/lib/*.dylib", "mlx/lib/mlx.metallib"],
      };

/** The machine's own platform, or with `--macos` among the arguments that one. */
export function chosenPlatform(): Platform {
  return process.platform === "darwin" || process.argv.includes("--macos") ? macos : linux;
}

export const crossCompiling = process.platform !== "darwin" && process.argv.includes("--macos");
export const mlxC = join(deps, `mlx-c-${native.mlxC}`);
