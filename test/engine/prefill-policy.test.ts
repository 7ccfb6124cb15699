/** Sizes of prefill chunks: bounds, rounding, what other rows may be made to wait, and what measurements change. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { PrefillPolicy } from "../../src/engine/prefill-policy.ts";

test("before anything is measured a chunk is 128 tokens, or what is left", () => {
  const policy = new PrefillPolicy();
  expect(policy.chunk(5000, false)).toBe(128);
  expect(policy.chunk(5000, true)).toBe(128);
  expect(policy.chunk(7, true)).toBe(7);
});

test("alone a chunk takes about a second, beside others 150 ms", () => {
  const policy = new PrefillPolicy();
  policy.measured(128, 128);
  expect(policy.chunk(5000, false)).toBe(992);
  expect(policy.chunk(5000, true)).toBe(128);
  policy.measured(1000, 3000);
  expect(policy.chunk(5000, false)).toBe(480);
  expect(policy.chunk(5000, true)).toBe(64);
});

test("short chunks teach nothing: their time is that of a step", () => {
  const policy = new PrefillPolicy();
  policy.measured(31, 10_000);
  expect(policy.chunk(5000, false)).toBe(128);
});

test("whatever is measured, a chunk is in bounds, whole, and a multiple of 32 unless it ends the prompt", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.integer({ min: 1, max: 2048 }), fc.double({ min: 0, max: 1e6, noNaN: true })), {
        maxLength: 6,
      }),
      fc.integer({ min: 1, max: 100_000 }),
      fc.boolean(),
      (measurements, remaining, shared) => {
        const policy = new PrefillPolicy();
        for (const [tokens, ms] of measurements) policy.measured(tokens, ms);
        const chunk = policy.chunk(remaining, shared);
        expect(Number.isInteger(chunk)).toBe(true);
        expect(chunk).toBeGreaterThanOrEqual(Math.min(remaining, 32));
        expect(chunk).toBeLessThanOrEqual(Math.min(remaining, 2048));
        if (chunk < remaining) expect(chunk % 32).toBe(0);
        if (shared) expect(chunk).toBeLessThanOrEqual(policy.chunk(remaining, false));
      },
    ),
  );
});
