/** Every scaling of the rotation against its formula in float64 (models-dense.md §3.7), by both ways of rotating. */
import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { float32Array, int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { makeRope, type RopeScaling, type RopeSpec, ropeDivisors, ropeMagnitude } from "../../src/nn/rope.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

/** The divisors of the position, written down anew from the specification. */
function divisors(spec: RopeSpec, length: number): number[] {
  const { dims, base, scaling } = spec;
  const half = Array.from({ length: dims / 2 }, (_, j) => j);
  const f = (j: number) => base ** ((2 * j) / dims);
  switch (scaling.kind) {
    case "none":
      return half.map(f);
    case "linear":
      return half.map((j) => f(j) * scaling.factor);
    case "factors":
      return half.map((j) => f(j) * (scaling.factors[j] ?? Number.NaN));
    case "longrope":
      return half.map((j) => f(j) * (scaling.longFactor[j] ?? Number.NaN));
    case "dynamic": {
      const n = Math.max(length, scaling.maxPositions);
      const grown = base * ((scaling.factor * n) / scaling.maxPositions - (scaling.factor - 1)) ** (dims / (dims - 2));
      return half.map((j) => grown ** ((2 * j) / dims));
    }
    case "llama3":
      return half.map((j) => {
        const wave = 2 * Math.PI * f(j);
        const [low, high] = [scaling.lowFreqFactor, scaling.highFreqFactor];
        if (wave > scaling.originalMaxPositions / low) return f(j) * scaling.factor;
        if (wave < scaling.originalMaxPositions / high) return f(j);
        const s = (scaling.originalMaxPositions / wave - low) / (high - low);
        return 1 / ((1 - s) / (scaling.factor * f(j)) + s / f(j));
      });
    case "yarn": {
      const corr = (n: number) =>
        (dims * Math.log(scaling.originalMaxPositions / (2 * Math.PI * n))) / (2 * Math.log(base));
      const low = Math.max(Math.floor(corr(scaling.betaFast)), 0);
      const ceiling = Math.min(Math.ceil(corr(scaling.betaSlow)), dims - 1);
      const high = ceiling === low ? ceiling + 0.001 : ceiling;
      return half.map((j) => {
        // A mix of the plain and the interpolated inverse wavelength.
        const ramp = Math.min(1, Math.max(0, (j - low) / (high - low)));
        return 1 / ((1 - ramp) / f(j) + ramp / (scaling.factor * f(j)));
      });
    }
  }
}

function magnitude(scaling: RopeScaling): number {
  if (scaling.kind === "yarn" && scaling.factor > 1) {
    const m = (c: number) => 0.1 * c * Math.log(scaling.factor) + 1;
    return m(scaling.mscale) / m(scaling.mscaleAllDim);
  }
  if (scaling.kind === "longrope") {
    if (scaling.longMscale !== null) return scaling.longMscale;
    const ratio = scaling.maxPositions / scaling.originalMaxPositions;
    return ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(scaling.originalMaxPositions));
  }
  return 1;
}

/** x [heads, T, width] rotated in float64; row t stands at positions[t]. */
function rotated(x: Float32Array, spec: RopeSpec, width: number, positions: readonly number[], length: number) {
  const out = Float64Array.from(x);
  const table = divisors(spec, length);
  const scale = magnitude(spec.scaling);
  for (let row = 0; row < x.length / width; row++) {
    const position = positions[row % positions.length] ?? Number.NaN;
    for (const [j, divisor] of table.entries()) {
      const [first, second] = spec.traditional ? [2 * j, 2 * j + 1] : [j, j + table.length];
      const [a, b] = [x[row * width + first] ?? 0, x[row * width + second] ?? 0];
      const angle = position / divisor;
      out[row * width + first] = scale * (a * Math.cos(angle) - b * Math.sin(angle));
      out[row * width + second] = scale * (a * Math.sin(angle) + b * Math.cos(angle));
    }
  }
  return out;
}

const longFactor = Array.from({ length: 8 }, (_, j) => 1 + j / 3);
const yarn = { kind: "yarn", factor: 4, originalMaxPositions: 64, betaFast: 32, betaSlow: 1, mscale: 1 } as const;
const longrope = { kind: "longrope", longFactor, originalMaxPositions: 64, maxPositions: 1024 } as const;
const kinds: readonly (readonly [string, RopeScaling])[] = [
  ["none", { kind: "none" }],
  ["linear", { kind: "linear", factor: 4 }],
  ["dynamic within its length", { kind: "dynamic", factor: 2, maxPositions: 4096 }],
  ["dynamic beyond its length", { kind: "dynamic", factor: 2, maxPositions: 32 }],
  ["factors", { kind: "factors", factors: longFactor }],
  ["llama3", { kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 64 }],
  ["yarn", { ...yarn, mscaleAllDim: 0 }],
  ["yarn with both temperatures", { ...yarn, factor: 8, betaFast: 16, betaSlow: 2, mscaleAllDim: 0.7 }],
  ["yarn whose ramp is a step", { ...yarn, originalMaxPositions: 4, betaFast: 1, betaSlow: 1, mscaleAllDim: 1 }],
  ["yarn with a factor below 1", { ...yarn, factor: 0.5, mscaleAllDim: 0 }],
  ["longrope", { ...longrope, longMscale: null }],
  ["longrope within its length", { ...longrope, maxPositions: 64, longMscale: null }],
  ["longrope with its own temperature", { ...longrope, longMscale: 1.25 }],
];

const HEADS = 2;

describe.each(kinds)("%s", (_, scaling) => {
  const specs = fc.record({
    dims: fc.constant(16),
    traditional: fc.boolean(),
    base: fc.constantFrom(10_000, 500_000),
    scaling: fc.constant(scaling),
  });
  const places = fc.record({
    width: fc.constantFrom(16, 24),
    offset: fc.nat(300),
    count: fc.integer({ min: 1, max: 5 }),
  });

  test("rotate: consecutive positions; features beyond the rotated ones pass", () => {
    fc.assert(
      fc.property(specs, places, (spec, { width, offset, count }) => {
        const rope = makeRope(spec);
        const x = Float32Array.from({ length: HEADS * count * width }, (_, i) => Math.sin(i * 1.7 + offset));
        const out = scope(() => toFloat32(rope.rotate(float32Array(x, [1, HEADS, count, width]), offset)));
        rope.dispose();
        rope.dispose();
        const positions = Array.from({ length: count }, (_, t) => offset + t);
        const expected = rotated(x, spec, width, positions, offset + count);
        // Angles are float32: at position 300 the last bit of an angle is 3e-5.
        for (const [i, value] of out.entries()) {
          expect(Math.abs(value - (expected[i] ?? Number.NaN))).toBeLessThan(1e-4);
        }
      }),
      { numRuns: 20 },
    );
  });

  test("rotateAt: every row at its own position, bit for bit as rotate", () => {
    const spec: RopeSpec = { dims: 16, traditional: false, base: 10_000, scaling };
    const rope = makeRope(spec);
    expect(rope.flat).toBe(scaling.kind !== "dynamic");
    const positions = [5, 0, 300, 6];
    const x = Float32Array.from({ length: positions.length * HEADS * 24 }, (_, i) => Math.cos(i));
    scope(() => {
      const at = () => rope.rotateAt(float32Array(x, [positions.length, HEADS, 1, 24]), int32Array(positions));
      if (!rope.flat) {
        expect(at).toThrow(RangeError);
        return;
      }
      const together = toFloat32(at());
      const single = HEADS * 24;
      for (const [row, position] of positions.entries()) {
        const own = x.subarray(row * single, (row + 1) * single);
        const alone = toFloat32(rope.rotate(float32Array(own, [1, HEADS, 1, 24]), position));
        expect([...together.subarray(row * single, (row + 1) * single)]).toEqual([...alone]);
      }
    });
    rope.dispose();
  });

  test("divisors and temperature", () => {
    const spec: RopeSpec = { dims: 16, traditional: false, base: 10_000, scaling };
    const plain = scaling.kind === "none" || scaling.kind === "linear" || scaling.kind === "dynamic";
    if (!plain) {
      for (const [j, divisor] of ropeDivisors(spec).entries()) {
        expect(divisor / (divisors(spec, 1)[j] ?? Number.NaN)).toBeCloseTo(1, 12);
      }
    }
    expect(ropeMagnitude(scaling)).toBeCloseTo(magnitude(scaling), 12);
  });
});

test("a rotation that was never used has nothing to free", () => {
  for (const [, scaling] of kinds) makeRope({ dims: 16, traditional: false, base: 10_000, scaling }).dispose();
  expect(liveArrays()).toBe(0);
});
