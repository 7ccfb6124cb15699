/**
 * CPU time of the calling thread, in nanoseconds: it stops while the thread waits and while others have the processor,
 * which makes it the steadiest measure of host work on a shared machine. From libc, since `process.threadCpuUsage`
 * counts in scheduler ticks of 4 ms.
 */
import { dlopen, ptr } from "bun:ffi";

const darwin = process.platform === "darwin";
const THREAD_CPU_CLOCK = darwin ? 16 : 3;
const libc = dlopen(darwin ? "libSystem.B.dylib" : "libc.so.6", {
  clock_gettime: { args: ["i32", "ptr"], returns: "i32" },
});
// Large enough that its address stays (see src/mlx/pinned.ts).
const cells = new BigInt64Array(8192);
const address = ptr(cells);

export function threadCpuNanoseconds(): number {
  if (libc.symbols.clock_gettime(THREAD_CPU_CLOCK, address) !== 0) throw new Error("clock_gettime failed");
  return Number(cells[0]) * 1e9 + Number(cells[1]);
}

/** CPU time of all threads of the process, in nanoseconds. */
export function processCpuNanoseconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}

export interface Times {
  readonly wall_ns: number;
  /** CPU time of the measuring thread. */
  readonly thread_ns: number;
  /** CPU time of all threads: MLX's own among them. */
  readonly process_ns: number;
}

/** Times of `body`, divided by `count`. */
export function timed(count: number, body: () => void): Times {
  const [wall, thread, all] = [Bun.nanoseconds(), threadCpuNanoseconds(), processCpuNanoseconds()];
  body();
  return {
    wall_ns: (Bun.nanoseconds() - wall) / count,
    thread_ns: (threadCpuNanoseconds() - thread) / count,
    process_ns: (processCpuNanoseconds() - all) / count,
  };
}
