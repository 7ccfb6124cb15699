import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { CostCurves, expectedCommitted } from "../../src/decoding/cost-curves.ts";
import { curveOf, interpolate, isotonic, kneeWidth } from "../../src/decoding/curve.ts";
import { capGolden } from "./cap-golden.ts";

/** Values at keys 1, 2, 3, … */
const from1 = (...values: number[]) => Object.fromEntries(values.map((value, i) => [i + 1, value]));

describe("curve", () => {
  test("interpolation table", () => {
    const curve = curveOf({ 2: 10, 4: 20, 8: 60 });
    expect([3, 1, 10, 2, 4, 8, 6].map((x) => interpolate(curve, x))).toEqual([15, 10, 80, 10, 20, 60, 40]);
    expect([1, 5, 99].map((x) => interpolate(curveOf({ 5: 7 }), x))).toEqual([7, 7, 7]);
  });

  test("keys are ordered as numbers", () => {
    expect(interpolate(curveOf({ 10: 100, 9: 90, 2: 20 }), 9.5)).toBe(95);
    expect(
      curveOf(
        new Map([
          [3, 1],
          [1, 2],
        ]),
      ).keys,
    ).toEqual([1, 3]);
  });

  test("refuses what is no curve", () => {
    expect(() => curveOf({})).toThrow(RangeError);
    expect(() => curveOf({ 1: Number.NaN })).toThrow(RangeError);
    expect(() => curveOf({ x: 1 })).toThrow(RangeError);
  });

  test("isotonic fit: known pools", () => {
    expect(isotonic(curveOf(from1(1, 3, 2, 4))).values).toEqual([1, 2.5, 2.5, 4]);
    expect(isotonic(curveOf(from1(3, 2, 1))).values).toEqual([2, 2, 2]);
  });

  test("isotonic fit never falls, keeps the sum, leaves rising curves alone, and no rising curve is nearer", () => {
    const values = fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { minLength: 1, maxLength: 10 });
    const distance = (a: readonly number[], b: readonly number[]) =>
      a.reduce((sum, x, i) => sum + (x - (b[i] as number)) ** 2, 0);
    fc.assert(
      fc.property(values, values, (raw, other) => {
        const fit = isotonic(curveOf(from1(...raw))).values;
        for (let i = 1; i < fit.length; i++)
          expect(fit[i] as number).toBeGreaterThanOrEqual((fit[i - 1] as number) - 1e-9);
        const total = (list: readonly number[]) => list.reduce((sum, x) => sum + x, 0);
        expect(Math.abs(total(fit) - total(raw))).toBeLessThan(1e-6);
        const rising = [...raw].map((_, i) => other[i % other.length] as number).sort((a, b) => a - b);
        expect(distance(raw, fit)).toBeLessThanOrEqual(distance(raw, rising) + 1e-6);
        expect(isotonic(curveOf(from1(...rising))).values).toEqual(rising);
      }),
    );
  });

  test.each([
    ["convex", from1(10, 10.5, 11, 14, 20), 4],
    ["linear", from1(10, 12, 14, 16, 18), 5],
    ["one flat step, then a wall", from1(10, 10, 14, 18), 3],
    ["cliff at width 2", from1(20, 36, 37, 38, 39), 2],
    ["noise of a millisecond", from1(21, 22, 22, 23, 24, 30, 34, 36), 6],
    ["two points", from1(1, 100), 2],
  ])("knee: %s", (_, points, knee) => {
    expect(kneeWidth(curveOf(points))).toBe(knee);
  });

  test("knees of the golden curves", () => {
    for (const { verify_ms, knee_width } of capGolden.controllers) {
      expect(kneeWidth(curveOf(verify_ms))).toBe(knee_width);
    }
  });
});

describe("caps from curves", () => {
  // calibration.md §6: published end-to-end optima.
  test.each([
    ["27B 2-bit", [40.8, 53.2, 72.0, 89.6, 107.9], [7.7, 7.9, 8.3, 9.7], 7.9, 2],
    [
      "27B 4-bit",
      [68.4, 69.6, 75.2, 93.8, 112.3, 141.5, 175.3, 176.3],
      [14.4, 14.8, 15.3, 16.5, 17.6, 19.3, 21.3],
      4.7,
      2,
    ],
    ["9B 8-bit", [36.7, 37.0, 37.8, 38.5, 40.6, 51.8, 61.9, 62.7], [10.4, 10.8, 11.4, 12.5, 13.5, 14.9, 16.5], 0.3, 4],
    ["4B 8-bit", [21.4, 22.0, 22.2, 22.8, 24.1, 29.6, 34.5, 36.2], [5.4, 5.5, 5.8, 6.3, 6.9, 8.2, 8.0], 0.0, 4],
    ["12B 8-bit", [57.9, 58.4, 59.6, 60.8, 63.7, 81.9, 97.0, 97.7], [11.6, 11.9, 12.6, 13.8, 14.9, 16.1, 18.0], 4.7, 4],
  ])("%s", (_, verify, drafter, overhead, cap) => {
    const curves = new CostCurves({ verify: from1(...verify), drafter: from1(...drafter), overhead });
    expect(curves.bestCap(verify.length - 1)).toBe(cap);
  });

  test("depth shrinks the cap", () => {
    const curves = new CostCurves({
      verify: from1(67.6, 69.4, 75.8, 92.2, 112.3, 111, 111, 111),
      drafter: 25,
      depthSlope: { 1: 0.0004, 4: 0.0018, 8: 0.0046 },
    });
    expect([512, 16384, 32768].map((depth) => curves.bestCap(7, 0.7, depth))).toEqual([7, 2, 2]);
    expect(curves.depthAdjustedCap(2048, 7)).toBe(7);
    expect(curves.depthAdjustedCap(16384, 7)).toBe(2);
    expect(curves.depthAdjustedCap(16384, 1)).toBe(1);
  });

  test("less context costs less, down to a quarter of what was measured", () => {
    const curves = new CostCurves({ verify: from1(10, 12), drafter: 1, depthSlope: { 1: 0.01, 2: 0.012 } });
    expect(curves.verifyMs(1)).toBe(10);
    expect(curves.verifyMs(1, 112)).toBeCloseTo(6, 9);
    expect(curves.roundMs(1, 1512)).toBeCloseTo(13 + 12, 9);
    const steep = new CostCurves({ verify: from1(10, 12), drafter: 1, depthSlope: { 1: 1 } });
    expect(steep.verifyMs(1, 0)).toBeCloseTo(2.5, 9);
  });

  test("golden static and depth-adjusted caps", () => {
    for (const golden of capGolden.controllers) {
      const curves = new CostCurves({
        verify: golden.verify_ms,
        drafter: golden.drafter_ms,
        overhead: golden.params.overhead_ms,
        depthSlope: golden.params.depth_slope,
        depth0: golden.params.depth0,
      });
      const { max_cap } = golden;
      // The reference counts no depth below that of its curves.
      const bestAt = (depth: number) => curves.bestCap(max_cap, 0.7, Math.max(depth, curves.depth0));
      // It asked at the depth where its trace ends.
      expect(bestAt(golden.steps.at(-1)?.depth ?? 0)).toBe(golden["static_best_p0.70"]);
      for (const [depth, cap] of Object.entries(golden["static_best_p0.70_at_depth"])) {
        expect(bestAt(Number(depth))).toBe(cap);
      }
      for (const [depth, cap] of Object.entries(golden["depth_adjusted_cap_default7_p0.70"])) {
        expect(curves.depthAdjustedCap(Number(depth), 7)).toBe(cap);
      }
    }
  });

  test("ties go to the smaller cap; a flat acceptance of one takes all", () => {
    const free = new CostCurves({ verify: from1(10, 10, 10, 10), drafter: 0 });
    expect(free.bestCap(3, 0)).toBe(1);
    expect(free.bestCap(3, 1)).toBe(3);
  });

  test("noise does not price more rows below fewer", () => {
    const curves = new CostCurves({ verify: from1(10, 14, 11, 13), drafter: 1 });
    const prices = [1, 2, 3, 4].map((width) => curves.verifyMs(width));
    expect(prices).toEqual([...prices].sort((a, b) => a - b));
  });

  test("plain step: measured alone when it was, and without the round's overhead", () => {
    const costs = { verify: from1(10, 11), drafter: 2, overhead: 3 };
    expect(new CostCurves(costs).roundMs(0)).toBe(10);
    expect(new CostCurves({ ...costs, plain: 8 }).roundMs(0)).toBe(8);
    expect(new CostCurves(costs).roundMs(1)).toBe(16);
  });

  test("a lookup draft costs its rows and the round, and no drafter", () => {
    const curves = new CostCurves({
      verify: from1(10, 11, 12, 13, 14, 15, 16),
      drafter: 5,
      overhead: 2,
      depthSlope: { "1": 0.01 },
      depth0: 512,
    });
    expect(curves.lookupMs(6)).toBe(18);
    expect(curves.lookupMs(6, 612)).toBe(19);
  });

  test("expected tokens", () => {
    expect(expectedCommitted(0, 0.7)).toBe(1);
    expect(expectedCommitted(3, 0.5)).toBe(1.875);
  });
});
