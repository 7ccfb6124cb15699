import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { allocateDrafts, type BudgetRow, type FixedRows } from "../../src/decoding/draft-budget.ts";
import { RowAcceptance } from "../../src/decoding/row-acceptance.ts";

/** Flat to 5 rows and to 9, as tiles of five rows cost. */
const steps = new CostCurves({
  verify: { 1: 20, 2: 20.1, 3: 20.2, 4: 20.3, 5: 20.4, 6: 30, 7: 30.1, 8: 30.2, 9: 30.3, 10: 40, 20: 90 },
  drafter: { 1: 3, 2: 3.1, 3: 3.3, 4: 3.5 },
  overhead: 0.5,
});

const row = (p: number, most = 4, depth = 0): BudgetRow => ({
  survival: Array.from({ length: most }, (_, i) => p ** (i + 1)),
  depth,
});

function rate(rows: readonly BudgetRow[], curves: CostCurves, fixed: FixedRows, drafts: readonly number[]): number {
  const tokens = rows.reduce(
    (sum, { survival }, b) => sum + 1 + survival.slice(0, drafts[b]).reduce((a, s) => a + s, 0),
    fixed.tokens,
  );
  const total = fixed.rows + drafts.reduce((sum, d) => sum + 1 + d, 0);
  const depth = rows.reduce((sum, { depth }, b) => sum + curves.depthMs(1 + (drafts[b] as number), depth), 0);
  return tokens / (curves.batchMs(total, Math.max(0, ...drafts)) + depth);
}

/** Best rate of all ways to give drafts. */
function bruteForce(rows: readonly BudgetRow[], curves: CostCurves, fixed: FixedRows): number {
  let ways: number[][] = [[]];
  for (const { survival, minimum = 0 } of rows) {
    ways = ways.flatMap((way) =>
      Array.from({ length: survival.length + 1 - minimum }, (_, i) => [...way, minimum + i]),
    );
  }
  return Math.max(...ways.map((drafts) => rate(rows, curves, fixed, drafts)));
}

interface Instance {
  readonly verify: readonly number[];
  readonly drafter: readonly number[];
  readonly overhead: number;
  readonly slope: number;
  readonly rows: readonly { survival: number[]; depth: number; wantsProbe: boolean }[];
  readonly fixed: number;
}

const instance = (slopes: boolean): fc.Arbitrary<Instance> =>
  fc.record({
    verify: fc.array(fc.double({ min: 0, max: 12, noNaN: true }), { minLength: 20, maxLength: 20 }),
    drafter: fc.array(fc.double({ min: 0, max: 2, noNaN: true }), { minLength: 4, maxLength: 4 }),
    overhead: fc.double({ min: 0, max: 3, noNaN: true }),
    slope: slopes ? fc.double({ min: 0, max: 0.002, noNaN: true }) : fc.constant(0),
    rows: fc.array(
      fc.record({
        survival: fc
          .array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 4 })
          .map((list) => list.sort((a, b) => b - a)),
        depth: fc.integer({ min: 0, max: 20_000 }),
        wantsProbe: fc.boolean(),
      }),
      { minLength: 1, maxLength: 4 },
    ),
    fixed: fc.integer({ min: 0, max: 6 }),
  });

function setUp(values: Instance) {
  const rising = (start: number, steps: readonly number[]) =>
    Object.fromEntries(steps.map((_, i) => [i + 1, steps.slice(0, i + 1).reduce((sum, step) => sum + step, start)]));
  const verify = rising(10, values.verify);
  const drafter = rising(2, values.drafter);
  const depthSlope = values.slope === 0 ? null : { 1: values.slope, 5: 3 * values.slope };
  const curves = new CostCurves({ verify, drafter, overhead: values.overhead, depthSlope });
  const rows: BudgetRow[] = values.rows.map(({ survival, depth, wantsProbe }) => ({
    survival,
    depth,
    minimum: wantsProbe && survival.length > 0 ? 1 : 0,
  }));
  return { curves, rows, fixed: { rows: values.fixed, tokens: values.fixed / 2 } };
}

describe("draft budgets", () => {
  test("equal to brute force where cost depends on rows and on the longest draft", () => {
    fc.assert(
      fc.property(instance(false), (values) => {
        const { curves, rows, fixed } = setUp(values);
        const drafts = allocateDrafts(rows, curves, fixed);
        for (const [b, { survival, minimum = 0 }] of rows.entries()) {
          expect(drafts[b]).toBeGreaterThanOrEqual(minimum);
          expect(drafts[b]).toBeLessThanOrEqual(survival.length);
        }
        const [ours, best] = [rate(rows, curves, fixed, drafts), bruteForce(rows, curves, fixed)];
        expect(ours).toBeGreaterThan(best * (1 - 1e-9));
      }),
      { numRuns: 500 },
    );
  });

  test("near brute force with rows of different depth", () => {
    const ratios: number[] = [];
    fc.assert(
      fc.property(instance(true), (values) => {
        const { curves, rows, fixed } = setUp(values);
        const ratio = rate(rows, curves, fixed, allocateDrafts(rows, curves, fixed)) / bruteForce(rows, curves, fixed);
        ratios.push(ratio);
        expect(ratio).toBeGreaterThan(0.95);
      }),
      { numRuns: 300, seed: 7 },
    );
    expect(ratios.reduce((sum, x) => sum + x, 0) / ratios.length).toBeGreaterThan(0.998);
  });

  test("one row: the cap of the curves", () => {
    for (const p of [0.3, 0.5, 0.7, 0.9]) {
      const cap = steps.rate(steps.bestCap(4, p), p) > steps.rate(0, p) ? steps.bestCap(4, p) : 0;
      expect(allocateDrafts([row(p)], steps)).toEqual([cap]);
    }
  });

  test("the predictable rows get the drafts that fit below a step of the curve", () => {
    const drafts = allocateDrafts([row(0.2), row(0.9), row(0.3), row(0.25)], steps);
    expect(drafts[1]).toBeGreaterThan(0);
    expect(Math.max(...drafts)).toBe(drafts[1] as number);
    expect([5, 9]).toContain(4 + drafts.reduce((sum, d) => sum + d, 0));
  });

  test("a probe is given where nothing would be", () => {
    const dear = new CostCurves({ verify: { 1: 20, 2: 40, 3: 60 }, drafter: 10 });
    expect(allocateDrafts([row(0.5)], dear)).toEqual([0]);
    expect(allocateDrafts([{ ...row(0.5), minimum: 1 }], dear)).toEqual([1]);
  });

  test("total rows are limited", () => {
    const free = new CostCurves({ verify: { 1: 20 }, drafter: 0 });
    const rows = [row(0.9, 10), row(0.8, 10)];
    const drafts = allocateDrafts(rows, free, { rows: 3, tokens: 0 }, 12);
    expect(3 + drafts.reduce((sum, d) => sum + 1 + d, 0)).toBe(12);
    expect(allocateDrafts([], free)).toEqual([]);
  });
});

describe("row acceptance", () => {
  test("starts at the engine's estimate and moves to the row's own", () => {
    const acceptance = new RowAcceptance();
    expect(acceptance.estimate(0.6)).toBeCloseTo(0.6, 12);
    acceptance.update(4, 4);
    expect(acceptance.estimate(0.6)).toBeCloseTo((16 * 0.6 + 4) / 20, 12);
    acceptance.update(4, 1);
    expect(acceptance.estimate(0.6)).toBeCloseTo((16 * 0.6 + 5) / 22, 12);
    for (let i = 0; i < 60; i++) acceptance.update(4, 0);
    expect(acceptance.estimate(0.6)).toBeLessThan(0.35);
    expect(acceptance.survival(1, 3)[2]).toBeCloseTo(acceptance.estimate(1) ** 3, 12);
  });

  test("a row without drafts tries one at every eighth step", () => {
    const acceptance = new RowAcceptance();
    const probes = Array.from({ length: 24 }, () => {
      const due = acceptance.probeDue;
      acceptance.update(due ? 1 : 0, 0);
      return due;
    });
    expect(probes.flatMap((due, i) => (due ? [i] : []))).toEqual([7, 15, 23]);
  });
});
