/**
 * Whether the native libraries compute on this machine. Opens MLX on the calling thread and evaluates a product there,
 * so it belongs in a process that does nothing else: a broken driver or library may end it.
 */
import { float32Array, scope, toFloat32 } from "../mlx/array.ts";
import { cpuIsa, cpuThreads } from "../mlx/cpu.ts";
import { MlxError } from "../mlx/error.ts";
import { type Device, device, mlxVersion, native, openMlx } from "../mlx/native.ts";
import { matmul } from "../mlx/ops.ts";

export interface BackendFacts {
  readonly device: Device;
  /** Version of the linked MLX. */
  readonly mlx: string;
  /** Interface version of the native library. */
  readonly shim: number;
  /** Instruction set of the CPU kernels: "avx512", "avx2", "neon" or "portable". */
  readonly isa: string;
  /** CPU threads that share a step's work. */
  readonly threads: number;
}

const A = [1, 2, 3, 4, 5, 6];
const B = [1, 0, 0, 1, 1, 1];
const PRODUCT = [4, 5, 10, 11];

/**
 * @param nativeFolder see `openMlx`
 * @throws MlxError when the libraries cannot be loaded or compute something else
 */
export function tryBackend(nativeFolder: string): BackendFacts {
  openMlx(nativeFolder);
  const product = scope(() => [...toFloat32(matmul(float32Array(A, [2, 3]), float32Array(B, [3, 2])))]);
  if (product.some((value, i) => value !== PRODUCT[i])) {
    throw new MlxError("matmul", `a product of small integers came out as ${product.join(", ")}`);
  }
  return { device, mlx: mlxVersion(), shim: native.dspark_abi_version(), isa: cpuIsa(), threads: cpuThreads() };
}
