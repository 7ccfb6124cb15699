/** The soak in short: what `make soak` shows over 1,000 requests must not already fail over 90. */
import { expect, test } from "bun:test";
import { fromSources } from "./served-process.ts";
import { residentGrowth, soak } from "./soak.ts";

test("90 requests of 8 clients, a third of them cut: nothing fails, nothing is left over", async () => {
  const result = await soak(
    fromSources(),
    { requests: 90, clients: 8, cutShare: 0.33, seed: 7 },
    { part: 30, rests: 1 },
  );
  expect(result.failures).toEqual([]);
  expect(result.lived).toBe(true);
  expect(result.cut).toBeGreaterThan(5);
  expect(result.answered + result.cut).toBe(90);
  expect(new Set(result.samples.map(({ liveArrays }) => liveArrays)).size).toBe(1);
  // The first part still warms the program up.
  expect(residentGrowth(result.samples)).toBeLessThan(0.2);
}, 60_000);
