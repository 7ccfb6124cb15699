import { expect, test } from "bun:test";
import { evaluate, free, keep, scope } from "../../src/mlx/array.ts";
import { activeBytes, releaseMemory } from "../../src/mlx/memory.ts";
import { arange } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../support/native.ts";

openTestMlx();

const COUNT = 64;
const MB = 1e6;

test("activeBytes counts live arrays", () => {
  const before = activeBytes();
  const x = scope(() => keep(arange(0, 250_000, "float32")));
  evaluate([x]);
  expect(activeBytes() - before).toBeGreaterThanOrEqual(1 * MB);
  free(x);
  expect(activeBytes()).toBe(before);
});

test.skipIf(process.platform !== "linux")("freed arrays are kept for the next step, until memory is released", () => {
  releaseMemory();
  const start = process.memoryUsage.rss();
  const arrays = scope(() => Array.from({ length: COUNT }, (_, i) => keep(arange(i, i + 250_000, "float32"))));
  evaluate(arrays);
  const full = process.memoryUsage.rss();
  expect(full - start).toBeGreaterThan((COUNT / 2) * MB);
  for (const x of arrays) free(x);
  const kept = process.memoryUsage.rss();
  expect(full - kept).toBeLessThan((COUNT / 2) * MB);
  releaseMemory();
  expect(full - process.memoryUsage.rss()).toBeGreaterThan((COUNT / 2) * MB);
});
