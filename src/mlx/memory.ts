/** MLX's allocator, in bytes. */
import { lastError, native } from "./native.ts";

const cell = new BigUint64Array(1);

function query(name: "mlx_get_active_memory" | "mlx_get_cache_memory" | "mlx_get_peak_memory"): number {
  if (native[name](cell) !== 0) throw lastError(name);
  return Number(cell[0]);
}

/** Bytes in live arrays. */
export function activeBytes(): number {
  return query("mlx_get_active_memory");
}

/** Bytes of freed buffers kept for reuse. */
export function cachedBytes(): number {
  return query("mlx_get_cache_memory");
}

/** Largest `activeBytes` since the start or `resetPeak`. */
export function peakBytes(): number {
  return query("mlx_get_peak_memory");
}

export function resetPeak(): void {
  if (native.mlx_reset_peak_memory() !== 0) throw lastError("reset_peak_memory");
}

/** Gives all freed memory back, the C library's too. Takes milliseconds: for a thread that has nothing to do. */
export function releaseMemory(): void {
  if (native.dspark_release_memory() !== 0) throw lastError("release_memory");
}

/** Limits the freed buffers kept for reuse. */
export function setCacheLimit(bytes: number): void {
  if (native.mlx_set_cache_limit(cell, bytes) !== 0) throw lastError("set_cache_limit");
}
