/** Which n-grams a row's own text is searched by: short ones only where a draft is compared with the drafter's. */
import { expect, test } from "bun:test";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { Speculator, type SpeculatorOptions } from "../../src/decoding/speculator.ts";
import type { Drafter } from "../../src/drafters/drafter.ts";

const curves = new CostCurves({ verify: { 1: 10, 7: 16 }, drafter: { 1: 1, 6: 3 } });
const drafter = { kind: "dspark", maxDraft: 6, newSession: () => null } as unknown as Drafter;
const auto = () => new CapController(curves, { maxCap: 6 });
/** Three tokens repeat, and no four. */
const TEXT = [7, 1, 2, 3, 9, 8, 1, 2, 3];

test.each([
  ["alone", { drafter: null, cap: 0, curves: null }, true],
  ["beside a drafter whose worth is learnt", { drafter, cap: auto(), curves }, true],
  ["beside a fixed cap", { drafter, cap: 2, curves }, false],
  ["beside a drafter without prices", { drafter, cap: 2, curves: null }, false],
] as const satisfies readonly (readonly [string, Partial<SpeculatorOptions>, boolean])[])("%s", (_, part, found) => {
  const options = { lookup: true, longDraft: 32, confidenceThreshold: 0, ...part };
  const { lookup } = new Speculator(options).newRow(TEXT, 100);
  expect(lookup?.propose() !== null).toBe(found);
});
