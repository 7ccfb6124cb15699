/** Which rows keep a context for the drafter: all, but for most of those whose drafts could not pay. */
import { expect, test } from "bun:test";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { Speculator } from "../../src/decoding/speculator.ts";
import type { Drafter, DrafterSession } from "../../src/drafters/drafter.ts";

const drafter = { kind: "dspark", maxDraft: 2, newSession: () => ({}) as DrafterSession } as unknown as Drafter;
const options = { drafter, lookup: true, longDraft: 32, confidenceThreshold: 0 };
const cheap = new CostCurves({ verify: { 1: 20, 2: 21, 3: 22 }, drafter: 1 });
const dear = new CostCurves({ verify: { 1: 20, 2: 45, 3: 70 }, drafter: 5 });

/** Of 32 new rows, after rounds whose drafts all stood or all failed. */
function contexts(curves: CostCurves, stands: boolean, rounds = 40): boolean[] {
  const cap = new CapController(curves, { maxCap: 2 });
  for (let i = 0; i < rounds; i++) {
    const drafted = cap.cap;
    const accepted = stands ? drafted : 0;
    cap.update({ rows: [{ drafted, accepted }], ms: curves.roundMs(drafted), committed: accepted + 1 });
  }
  const speculator = new Speculator({ ...options, cap, curves });
  return Array.from({ length: 32 }, () => speculator.newRow([1, 2, 3], 100).session !== null);
}

test("a text may accept what the last one refused: every row keeps one where drafts are cheap", () => {
  expect(contexts(cheap, false)).not.toContain(false);
  expect(contexts(cheap, true)).not.toContain(false);
});

test("before anything was timed every row keeps one", () => {
  expect(contexts(dear, true, 0)).not.toContain(false);
});

test("where drafts would not pay even if all stood, one row in eight", () => {
  for (const stands of [true, false]) {
    const kept = contexts(dear, stands).flatMap((has, i) => (has ? [i] : []));
    expect(kept).toEqual([7, 15, 23, 31]);
  }
});

test("a fixed cap was asked for: every row", () => {
  const speculator = new Speculator({ ...options, cap: 2, curves: dear });
  const kept = Array.from({ length: 32 }, () => speculator.newRow([1, 2, 3], 100).session !== null);
  expect(kept).not.toContain(false);
});
