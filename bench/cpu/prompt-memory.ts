/**
 * What a long prompt takes beside weights, keys and values: the most that MLX's allocator and the whole process held while
 * it was read. Scratch must not grow with the prompt.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { cpuBytes } from "../../src/mlx/cpu.ts";
import { activeBytes, peakBytes, resetPeak } from "../../src/mlx/memory.ts";

/** For each stretch of the prompt: what stays (keys and values), MLX's peak, and the process's peak beyond what stays. */
export type PromptMemory = Record<string, number>;

/** The process's resident bytes, now and at most since `forgetPeak`. */
function resident(line: "VmRSS" | "VmHWM"): number {
  const text = readFileSync("/proc/self/status", "utf8");
  return Number(new RegExp(`${line}:\\s+(\\d+) kB`).exec(text)?.[1]) * 1024;
}

/** Linux forgets the peak of a process that asks for it (proc(5), clear_refs). */
function forgetPeak(): void {
  writeFileSync("/proc/self/clear_refs", "5");
}

export function measuredMemory(stretch: string, read: () => void): PromptMemory {
  const [activeBefore, keptBefore, residentBefore] = [activeBytes(), cpuBytes(), resident("VmRSS")];
  resetPeak();
  forgetPeak();
  read();
  const keptBytes = cpuBytes() - keptBefore;
  return {
    [`${stretch}: kept`]: keptBytes,
    [`${stretch}: MLX's peak`]: peakBytes() - activeBefore,
    [`${stretch}: process's peak beyond`]: resident("VmHWM") - residentBefore - keptBytes,
  };
}
