/** Top-k, top-p and min-p keep exactly the tokens that their definition keeps, ties together, and nothing else. */
import { afterEach, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { type Truncation, truncatedProbabilities } from "../../src/decoding/truncation.ts";
import { float32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { openTestMlx } from "../support/native.ts";
import { survivors } from "./sequential.ts";

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

function probabilities(logits: readonly number[], truncation: Truncation, rows = 1): Float32Array {
  const shape = [rows, logits.length / rows];
  return scope(() => toFloat32(truncatedProbabilities(float32Array(logits, shape), truncation)));
}

const OFF = { topP: 1, topK: 0, minP: 0 };
const support = (p: Float32Array) => [...p.keys()].filter((id) => p[id] !== 0);

/** Few different values, so that ties are common. */
const logits = fc.array(
  fc.oneof(
    fc.integer({ min: -6, max: 6 }).map((n) => n / 2),
    fc.double({ min: -20, max: 20, noNaN: true }),
  ),
  { minLength: 1, maxLength: 40 },
);
const truncations = fc.record({
  temperature: fc.constantFrom(1, 0.3, 0.7, 2),
  topP: fc.constantFrom(1, 0.999, 0.9, 0.5, 0.1, 1e-6),
  topK: fc.constantFrom(0, 1, 2, 5, 20, 1000),
  minP: fc.constantFrom(0, 0.01, 0.2, 1),
});

test("the support is exactly that of the definition, the rest is renormalised", () => {
  fc.assert(
    fc.property(logits, truncations, (values, truncation) => {
      const plain = probabilities(values, { ...OFF, temperature: truncation.temperature });
      const kept = survivors(plain, truncation);
      const p = probabilities(values, truncation);
      const mass = [...kept].reduce((sum, id) => sum + (plain[id] ?? 0), 0);
      for (const [id, value] of p.entries()) {
        const wanted = kept.has(id) ? (plain[id] ?? 0) / mass : 0;
        if (wanted === 0) expect(value).toBe(0);
        else expect(Math.abs(value / wanted - 1)).toBeLessThan(1e-5);
      }
      expect(p.reduce((sum, value) => sum + value, 0)).toBeCloseTo(1, 5);
    }),
    { numRuns: 500 },
  );
});

test("rows do not influence each other", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 4 }),
      fc.array(fc.integer({ min: -9, max: 9 }), { minLength: 12, maxLength: 12 }),
      truncations,
      (rows, values, truncation) => {
        const all = Array.from({ length: rows }, (_, r) => values.map((x, i) => x * Math.cos(r * i)));
        const together = probabilities(all.flat(), truncation, rows);
        for (const [r, row] of all.entries()) {
          expect([...together.subarray(r * 12, r * 12 + 12)]).toEqual([...probabilities(row, truncation)]);
        }
      },
    ),
    { numRuns: 50 },
  );
});

test("ties at the edge survive together", () => {
  expect(support(probabilities([3, 2, 2, 2, 1], { ...OFF, temperature: 1, topK: 2 }))).toEqual([0, 1, 2, 3]);
  expect(support(probabilities([2, 2, 2, 2], { ...OFF, temperature: 1, topP: 0.3 }))).toEqual([0, 1, 2, 3]);
  expect(support(probabilities([2, 2, 1], { ...OFF, temperature: 1, minP: 1 }))).toEqual([0, 1]);
});

test("the most likely token always stays", () => {
  expect(support(probabilities([0, 9, 1], { temperature: 1, topP: 1e-9, topK: 0, minP: 0 }))).toEqual([1]);
  expect(support(probabilities([5], { temperature: 1, topP: 0.5, topK: 7, minP: 1 }))).toEqual([0]);
});

test("masked logits have probability 0, also when they are within top-k", () => {
  const masked = [Number.NEGATIVE_INFINITY, 1, Number.NEGATIVE_INFINITY, 2];
  for (const topK of [0, 3]) {
    expect(support(probabilities(masked, { ...OFF, temperature: 1, topK }))).toEqual([1, 3]);
  }
});

test("extreme logits and temperatures stay finite", () => {
  for (const temperature of [1e-5, 1e-3, 2]) {
    const p = probabilities([-3e38, 0, 88, 89, 3e4], { temperature, topP: 0.9, topK: 4, minP: 0.01 });
    expect([...p].every((value) => Number.isFinite(value))).toBe(true);
    expect(support(p)).toEqual([4]);
  }
});
