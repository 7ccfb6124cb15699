/** A head's first columns alone are, to the bit, those of the whole product; what a backend leaves out is only behind them. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { dim, float32Array, keep, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { cpuThreads, liveCpuObjects, setCpuThreads } from "../../src/mlx/cpu.ts";
import { quantize, slice } from "../../src/mlx/ops.ts";
import { fusedCompute } from "../../src/nn/fused/compute.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(openTestMlx);
afterAll(() => expect([liveArrays(), liveCpuObjects()]).toEqual([0, 0]));

test.each(["fused", "stock"] as const)("%s", (name) => {
  const compute = name === "fused" ? fusedCompute() : stockCompute("float32");
  const threads = cpuThreads();
  const setting = fc.record({
    vocab: fc.integer({ min: 1, max: 1500 }),
    outputs: fc.integer({ min: 1, max: 1600 }),
    rows: fc.integer({ min: 1, max: 70 }),
    threads: fc.constantFrom(1, 2),
    seed: fc.integer({ min: 1, max: 1000 }),
  });
  fc.assert(
    fc.property(setting, ({ vocab, outputs, rows, threads, seed }) => {
      setCpuThreads(threads);
      const values = (n: number) => Float32Array.from({ length: n }, (_, i) => Math.sin(seed + i * i));
      const table = scope(() => {
        const { weight, scales, biases } = quantize(float32Array(values(vocab * 64), [vocab, 64]), 64, 8, "affine");
        const parts = { weight: keep(weight), scales: keep(scales), biases: keep(biases) };
        return compute.embedding({ kind: "quantized", ...parts, groupSize: 64, bits: 8, mode: "affine" });
      });
      scope(() => {
        const x = float32Array(values(rows * 64), [rows, 64]);
        const some = table.project(x, outputs);
        const wanted = Math.min(outputs, vocab);
        expect(dim(some, 1)).toBeGreaterThanOrEqual(wanted);
        if (name === "fused") expect(dim(some, 1)).toBeLessThan(wanted + 16);
        const first = (y: typeof x) => toFloat32(slice(y, [0, 0], [rows, wanted]));
        expect(first(some)).toEqual(first(table.project(x)));
      });
      table.dispose();
    }),
    { numRuns: 60 },
  );
  setCpuThreads(threads);
});
