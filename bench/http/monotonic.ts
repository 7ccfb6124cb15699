/** The system's monotonic clock in nanoseconds: the same in all processes, unlike `Bun.nanoseconds`. */
import { dlopen, ptr } from "bun:ffi";

const darwin = process.platform === "darwin";
const MONOTONIC = darwin ? 4 : 1;
const libc = dlopen(darwin ? "libSystem.B.dylib" : "libc.so.6", {
  clock_gettime: { args: ["i32", "ptr"], returns: "i32" },
});
// Large enough that its address stays (see src/mlx/pinned.ts).
const cells = new BigInt64Array(8192);
const address = ptr(cells);

export function monotonicNanoseconds(): number {
  if (libc.symbols.clock_gettime(MONOTONIC, address) !== 0) throw new Error("clock_gettime failed");
  return Number(cells[0]) * 1e9 + Number(cells[1]);
}
