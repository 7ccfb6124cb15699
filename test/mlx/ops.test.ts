/** Every op once, against a few lines of plain JavaScript; a new op without a case here fails the last test. */
import { afterEach, beforeAll, expect, test } from "bun:test";
import {
  boolArray,
  concatenate,
  float32Array,
  int32Array,
  liveArrays,
  type MlxArray,
  NONE,
  scalar,
  scope,
  shapeOf,
  toFloat32,
  uint32Array,
} from "../../src/mlx/array.ts";
import * as ops from "../../src/mlx/ops.ts";
import { categorical, randomKey } from "../../src/mlx/random.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

interface Outcome {
  readonly actual: MlxArray;
  readonly expected: readonly number[];
  readonly shape?: readonly number[];
  /** Largest allowed difference, relative above 1; 0 unless said. */
  readonly within?: number;
}

const A = [1.5, -2, 0.25, 3, -0.5, 4];
const B = [2, -2, 8, -3, 0.5, 1];
const a = () => float32Array(A, [2, 3]);
const b = () => float32Array(B, [2, 3]);
const f32 = Math.fround;

const unary = (op: (x: MlxArray) => MlxArray, reference: (x: number) => number) => (): Outcome => ({
  actual: op(a()),
  expected: A.map(reference),
  shape: [2, 3],
  within: 1e-6,
});
const binary = (op: (x: MlxArray, y: MlxArray) => MlxArray, reference: (x: number, y: number) => number) => () => ({
  actual: op(a(), b()),
  expected: A.map((x, i) => f32(reference(x, B[i] ?? 0))),
  shape: [2, 3],
});
const bit = (x: boolean) => (x ? 1 : 0);
const perRow = (reduce: (row: readonly number[]) => number) => [A.slice(0, 3), A.slice(3)].map(reduce);
const softmaxRow = (row: readonly number[]) => {
  const e = row.map(Math.exp);
  const total = e.reduce((s, x) => s + x, 0);
  return e.map((x) => x / total);
};
const total = (row: readonly number[]) => row.reduce((s, x) => s + x, 0);

/** Rotation of one head's row at a position, halves paired or neighbours. */
function rotated(row: readonly number[], position: number, traditional: boolean, divisors: readonly number[]) {
  const out = [...row];
  const half = divisors.length;
  for (const [j, divisor] of divisors.entries()) {
    const [first, second] = traditional ? [2 * j, 2 * j + 1] : [j, j + half];
    const angle = position / divisor;
    const [x, y] = [row[first] ?? 0, row[second] ?? 0];
    out[first] = x * Math.cos(angle) - y * Math.sin(angle);
    out[second] = x * Math.sin(angle) + y * Math.cos(angle);
  }
  return out;
}

const ROTATED_BY_BASE = [1, 100 ** (2 / 4)];
const X = Array.from({ length: 12 }, (_, i) => Math.sin(i + 1));

/** One query head pair over one key head, float64. */
function attended(mask: (query: number, key: number) => boolean): number[] {
  const at = (base: number, i: number, j: number) => Math.cos(base + i * 2 + j);
  const out: number[] = [];
  for (const head of [0, 1]) {
    for (const query of [0, 1]) {
      const scores = [0, 1, 2].map((key) =>
        mask(query, key)
          ? 0.5 * total([0, 1].map((j) => at(head * 4, query, j) * at(20, key, j)))
          : Number.NEGATIVE_INFINITY,
      );
      const weights = softmaxRow(scores);
      for (const j of [0, 1]) out.push(total(weights.map((w, key) => w * at(40, key, j))));
    }
  }
  return out;
}
const cosines = (base: number, count: number) => Float32Array.from({ length: count }, (_, i) => Math.cos(base + i));
const attention = (mask: Parameters<typeof ops.attention>[4]) => {
  const q = float32Array(cosines(0, 8), [1, 2, 2, 2]);
  const k = float32Array(cosines(20, 6), [1, 1, 3, 2]);
  return ops.attention(q, k, float32Array(cosines(40, 6), [1, 1, 3, 2]), 0.5, mask);
};

/** 2 × 64 values on the grid of an affine 8-bit group of 32 (MLX counts down from 255): quantizing loses nothing. */
const GRID = Array.from({ length: 128 }, (_, i) => (i % 32 === 0 ? 0 : i % 32 === 1 ? 255 : (i * 37) % 256));
const W = () => ops.quantize(float32Array(GRID, [2, 64]), 32, 8, "affine");
const product = (x: readonly number[], columns: number) =>
  Array.from({ length: columns }, (_, n) => total(x.map((value, k) => value * (GRID[n * 64 + k] ?? 0))));
const ONES64 = Array.from({ length: 64 }, (_, i) => (i % 3) - 1);

type Case = () => Outcome;
const cases: Readonly<Record<string, readonly Case[]>> = {
  exp: [unary(ops.exp, Math.exp)],
  negative: [unary(ops.negative, (x) => -x)],
  sigmoid: [unary(ops.sigmoid, (x) => 1 / (1 + Math.exp(-x)))],
  tanh: [unary(ops.tanh, Math.tanh)],
  log: [() => ({ actual: ops.log(float32Array([1, 2, 0])), expected: [0, f32(Math.LN2), -Infinity], within: 1e-6 })],
  add: [binary(ops.add, (x, y) => x + y)],
  subtract: [binary(ops.subtract, (x, y) => x - y)],
  multiply: [binary(ops.multiply, (x, y) => x * y)],
  divide: [binary(ops.divide, (x, y) => x / y)],
  maximum: [binary(ops.maximum, Math.max)],
  greater: [binary(ops.greater, (x, y) => bit(x > y))],
  greaterEqual: [binary(ops.greaterEqual, (x, y) => bit(x >= y))],
  less: [binary(ops.less, (x, y) => bit(x < y))],
  lessEqual: [binary(ops.lessEqual, (x, y) => bit(x <= y))],
  logicalAnd: [
    () => ({
      actual: ops.logicalAnd(boolArray(Uint8Array.of(0, 0, 1, 1)), boolArray(Uint8Array.of(0, 1, 0, 1))),
      expected: [0, 0, 0, 1],
    }),
  ],
  matmul: [
    () => ({
      actual: ops.matmul(a(), float32Array([1, 2, 3, 4, 5, 6], [3, 2])),
      expected: [1.5 - 6 + 1.25, 3 - 8 + 1.5, 3 - 1.5 + 20, 6 - 2 + 24],
      shape: [2, 2],
    }),
  ],
  addmm: [
    () => ({
      actual: ops.addmm(float32Array([10, 20]), a(), float32Array([1, 2, 3, 4, 5, 6], [3, 2])),
      expected: [6.75, 16.5, 31.5, 48],
      shape: [2, 2],
    }),
  ],
  where: [
    () => ({
      actual: ops.where(boolArray(Uint8Array.of(1, 0, 1), [1, 3]), a(), b()),
      expected: [1.5, -2, 0.25, 3, 0.5, 4],
    }),
  ],
  astype: [() => ({ actual: ops.astype(float32Array([1.9, -1.9, 3]), "int32"), expected: [1, -1, 3] })],
  view: [() => ({ actual: ops.view(float32Array([1, -2]), "uint32"), expected: [0x3f800000, f32(0xc0000000)] })],
  contiguous: [
    () => ({
      actual: ops.contiguous(ops.transpose(a(), [1, 0])),
      expected: [1.5, 3, -2, -0.5, 0.25, 4],
      shape: [3, 2],
    }),
  ],
  reshape: [() => ({ actual: ops.reshape(a(), [3, -1]), expected: A, shape: [3, 2] })],
  broadcastTo: [
    () => ({ actual: ops.broadcastTo(float32Array([1, 2]), [2, 2]), expected: [1, 2, 1, 2], shape: [2, 2] }),
  ],
  transpose: [
    () => ({ actual: ops.transpose(a(), [1, 0]), expected: [1.5, 3, -2, -0.5, 0.25, 4], shape: [3, 2] }),
    () => ({
      actual: ops.transpose(float32Array([1, 2, 3, 4, 5, 6], [1, 2, 3]), [2, 0, 1]),
      expected: [1, 4, 2, 5, 3, 6],
      shape: [3, 1, 2],
    }),
  ],
  swapaxes: [() => ({ actual: ops.swapaxes(a(), 0, -1), expected: [1.5, 3, -2, -0.5, 0.25, 4], shape: [3, 2] })],
  expandDims: [() => ({ actual: ops.expandDims(a(), -3), expected: A, shape: [1, 2, 3] })],
  slice: [() => ({ actual: ops.slice(a(), [0, 1], [2, 3]), expected: [-2, 0.25, -0.5, 4], shape: [2, 2] })],
  sliceUpdate: [
    () => ({
      actual: ops.sliceUpdate(a(), float32Array([7, 8], [2, 1]), [0, 2], [2, 3]),
      expected: [1.5, -2, 7, 3, -0.5, 8],
    }),
  ],
  zeros: [() => ({ actual: ops.zeros([2, 2], "bfloat16"), expected: [0, 0, 0, 0], shape: [2, 2] })],
  full: [() => ({ actual: ops.full([3], scalar(2.5, "float32"), "float32"), expected: [2.5, 2.5, 2.5] })],
  arange: [() => ({ actual: ops.arange(2, 6, "int32"), expected: [2, 3, 4, 5] })],
  take: [
    () => ({ actual: ops.take(a(), uint32Array([1, 0, 1]), 0), expected: [3, -0.5, 4, 1.5, -2, 0.25, 3, -0.5, 4] }),
  ],
  takeAlongAxis: [
    () => ({ actual: ops.takeAlongAxis(a(), int32Array([2, 0], [2, 1]), 1), expected: [0.25, 3], shape: [2, 1] }),
  ],
  putAlongAxis: [
    () => ({
      actual: ops.putAlongAxis(a(), int32Array([2, 0], [2, 1]), float32Array([9, 8], [2, 1]), 1),
      expected: [1.5, -2, 9, 8, -0.5, 4],
    }),
  ],
  scatterAddAxis: [
    () => ({
      actual: ops.scatterAddAxis(a(), int32Array([1, 1, 0, 2], [2, 2]), float32Array([1, 1, 1, 1], [2, 2]), 1),
      expected: [1.5, 0, 0.25, 4, -0.5, 5],
    }),
  ],
  argmax: [
    () => ({ actual: ops.argmax(float32Array([1, 5, 5, 9, 2, 9], [2, 3]), 1), expected: [1, 0], shape: [2] }),
    () => ({ actual: ops.argmax(a(), -1, true), expected: [0, 2], shape: [2, 1] }),
  ],
  max: [() => ({ actual: ops.max(a(), 1, true), expected: perRow((row) => Math.max(...row)), shape: [2, 1] })],
  sum: [
    () => ({ actual: ops.sum(a(), 1), expected: perRow(total), shape: [2] }),
    () => ({ actual: ops.sum(a(), 0, true), expected: [4.5, -2.5, 4.25], shape: [1, 3] }),
  ],
  logsumexp: [
    () => ({ actual: ops.logsumexp(a(), 1), expected: perRow((r) => Math.log(total(r.map(Math.exp)))), within: 1e-6 }),
  ],
  softmax: [
    () => ({
      actual: ops.softmax(a(), 1),
      expected: [...softmaxRow(A.slice(0, 3)), ...softmaxRow(A.slice(3))],
      within: 1e-6,
    }),
  ],
  sort: [() => ({ actual: ops.sort(a(), 1), expected: [-2, 0.25, 1.5, -0.5, 3, 4] })],
  argsort: [() => ({ actual: ops.argsort(a(), 1), expected: [1, 2, 0, 1, 0, 2] })],
  argpartition: [
    // The median stands in its place, on its left what is smaller.
    () => ({ actual: ops.slice(ops.argpartition(a(), 1, 1), [0, 0], [2, 2]), expected: [1, 2, 1, 0] }),
  ],
  topk: [() => ({ actual: ops.sort(ops.topk(a(), 2, 1), 1), expected: [0.25, 1.5, 3, 4], shape: [2, 2] })],
  cumsum: [() => ({ actual: ops.cumsum(a(), 1), expected: [1.5, -0.5, -0.25, 3, 2.5, 6.5] })],
  rmsNorm: [
    () => {
      const scaled = (row: readonly number[]) => {
        const rms = Math.sqrt(total(row.map((x) => x * x)) / 3 + 1e-5);
        return row.map((x, i) => (x / rms) * (i + 1));
      };
      return {
        actual: ops.rmsNorm(a(), float32Array([1, 2, 3]), 1e-5),
        expected: [...scaled(A.slice(0, 3)), ...scaled(A.slice(3))],
        within: 1e-6,
      };
    },
    () => ({ actual: ops.rmsNorm(float32Array([3, 3], [1, 2]), NONE, 0), expected: [1, 1], within: 1e-6 }),
  ],
  rope: [
    ...[false, true].map((traditional) => () => ({
      actual: ops.rope(float32Array(X, [1, 1, 2, 6]), 4, traditional, 100, 1, 5),
      expected: [0, 1].flatMap((t) => rotated(X.slice(t * 6, t * 6 + 6), 5 + t, traditional, ROTATED_BY_BASE)),
      within: 1e-5,
    })),
    () => ({
      actual: ops.rope(float32Array(X, [1, 1, 2, 6]), 6, false, null, 1, 3, float32Array([1, 2, Infinity])),
      expected: [0, 1].flatMap((t) => rotated(X.slice(t * 6, t * 6 + 6), 3 + t, false, [1, 2, Infinity])),
      within: 1e-5,
    }),
  ],
  ropeAt: [
    () => ({
      actual: ops.ropeAt(
        float32Array(X, [2, 1, 1, 6]),
        6,
        false,
        null,
        1,
        int32Array([900, 2]),
        float32Array([1, 2, 9]),
      ),
      expected: [900, 2].flatMap((at, t) => rotated(X.slice(t * 6, t * 6 + 6), at, false, [1, 2, 9])),
      within: 1e-4,
    }),
  ],
  attention: [
    () => ({ actual: attention("none"), expected: attended(() => true), shape: [1, 2, 2, 2], within: 1e-6 }),
    () => ({ actual: attention("causal"), expected: attended((query, key) => key <= query + 1), within: 1e-6 }),
    () => ({
      actual: attention(boolArray(Uint8Array.of(1, 0, 1, 0, 1, 0), [2, 3])),
      expected: attended((query, key) => (query === 0 ? key !== 1 : key === 1)),
      within: 1e-6,
    }),
  ],
  quantize: [
    () => ({ actual: ops.view(W().weight, "uint8"), expected: GRID.map((x) => 255 - x), shape: [2, 64] }),
    () => ({ actual: W().scales, expected: [-1, -1, -1, -1], shape: [2, 2] }),
    () => ({ actual: W().biases, expected: [255, 255, 255, 255], shape: [2, 2] }),
  ],
  dequantize: [
    () => {
      const { weight, scales, biases } = W();
      return { actual: ops.dequantize(weight, scales, biases, 32, 8, "affine"), expected: GRID, shape: [2, 64] };
    },
    () => {
      // Multiples of 1/2 up to 6 are mxfp4's own values.
      const values = Array.from({ length: 32 }, (_, i) => [0, 0.5, 1, 1.5, 2, 3, 4, 6][i % 8] ?? 0);
      const { weight, scales, biases } = ops.quantize(float32Array(values, [1, 32]), 32, 4, "mxfp4");
      expect(biases).toBe(NONE);
      return { actual: ops.dequantize(weight, scales, NONE, 32, 4, "mxfp4"), expected: values };
    },
  ],
  quantizedMatmul: [
    () => {
      const { weight, scales, biases } = W();
      const x = float32Array(ONES64, [1, 64]);
      return {
        actual: ops.quantizedMatmul(x, weight, scales, biases, true, 32, 8, "affine"),
        expected: product(ONES64, 2),
        shape: [1, 2],
      };
    },
    () => {
      const { weight, scales, biases } = W();
      return {
        actual: ops.quantizedMatmul(float32Array([1, -2], [1, 2]), weight, scales, biases, false, 32, 8, "affine"),
        expected: Array.from({ length: 64 }, (_, k) => (GRID[k] ?? 0) - 2 * (GRID[64 + k] ?? 0)),
        shape: [1, 64],
      };
    },
  ],
};

const listed = Object.entries(cases).flatMap(([name, list]) => list.map((run, i) => [`${name} ${i}`, run] as const));

test.each(listed)("%s", (_, run) => {
  scope(() => {
    const { actual, expected, shape, within = 0 } = run();
    if (shape !== undefined) expect(shapeOf(actual)).toEqual([...shape]);
    const values = toFloat32(actual);
    expect(values.length).toBe(expected.length);
    for (const [i, value] of values.entries()) {
      const wanted = expected[i] ?? Number.NaN;
      if (value === wanted) continue;
      const close = Math.abs(value - wanted) <= within * Math.max(1, Math.abs(wanted));
      expect({ i, value, wanted, close }).toEqual({ i, value, wanted, close: true });
    }
  });
});

test("every op has a case", () => {
  const exported = Object.entries(ops).flatMap(([name, value]) => (typeof value === "function" ? [name] : []));
  expect(Object.keys(cases).sort()).toEqual(exported.sort());
});

test("concatenate: several, and one as it is", () => {
  scope(() => {
    expect([...toFloat32(concatenate([a(), b()], 1))]).toEqual([
      ...A.slice(0, 3),
      ...B.slice(0, 3),
      ...A.slice(3),
      ...B.slice(3),
    ]);
    const single = a();
    expect(concatenate([single], 0)).toBe(single);
  });
});

test("a scalar is rounded to its dtype", () => {
  scope(() => {
    expect(toFloat32(scalar(3.87, "bfloat16"))[0]).toBe(3.875);
    expect(toFloat32(scalar(0.1, "float16"))[0]).toBe(0.0999755859375);
    expect(toFloat32(scalar(0.1, "float32"))[0]).toBe(f32(0.1));
  });
});

test("a draw is a function of key and logits, and -inf is never drawn", () => {
  scope(() => {
    const logits = float32Array([Number.NEGATIVE_INFINITY, 0, Number.NEGATIVE_INFINITY, 0], [1, 4]);
    const drawn = Array.from({ length: 64 }, (_, i) => toFloat32(categorical(logits, -1, randomKey(BigInt(i))))[0]);
    const again = Array.from({ length: 64 }, (_, i) => toFloat32(categorical(logits, -1, randomKey(BigInt(i))))[0]);
    expect(again).toEqual(drawn);
    expect(new Set(drawn)).toEqual(new Set([1, 3]));
  });
});
