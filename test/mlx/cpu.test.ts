/**
 * The CPU primitives against MLX's own ops in float32, on random shapes; each row the same bits alone and beside others;
 * what cannot be computed is refused by name when it is asked for.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  evaluate,
  float32Array,
  free,
  int32Array,
  keep,
  liveArrays,
  type MlxArray,
  NONE,
  scope,
  toFloat32,
  toUint32,
} from "../../src/mlx/array.ts";
import {
  type AttendedRow,
  type AttentionWeights,
  feedForward,
  freeAttentionPlan,
  freeKvStore,
  freePackedMatrix,
  liveCpuObjects,
  newAttentionPlan,
  newKvStore,
  normMatmul,
  type PackedMatrix,
  packedMatmul,
  packedMatmulAdd,
  packedNorm,
  packedRows,
  packMatrix,
  ropeTable,
  selfAttention,
  setCpuThreads,
} from "../../src/mlx/cpu.ts";
import {
  add,
  argmax,
  astype,
  attention,
  dequantize,
  matmul,
  multiply,
  type QuantMode,
  quantize,
  quantizedMatmul,
  reshape,
  rmsNorm,
  rope,
  sigmoid,
  slice,
  swapaxes,
  take,
  transpose,
} from "../../src/mlx/ops.ts";
import { relativeDifference } from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(openTestMlx);
afterAll(() => expect([liveArrays(), liveCpuObjects()]).toEqual([0, 0]));

/** Packed products round activations to 16 bits (rms 2e-5 of a product); plain ones only sum in another order. */
const PACKED = 2e-4;
const PLAIN = 1e-5;

/** Deterministic values near a normal distribution. */
function values(count: number, seed: number, scale = 1): Float32Array {
  let state = seed >>> 0 || 1;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296 - 0.5;
  };
  return Float32Array.from({ length: count }, () => (next() + next() + next()) * 2 * scale);
}

function rms(x: Float32Array): number {
  return Math.sqrt(x.reduce((sum, y) => sum + y * y, 0) / x.length);
}

const shape = fc.record({
  rows: fc.integer({ min: 1, max: 64 }),
  out: fc.integer({ min: 1, max: 70 }),
  groups: fc.integer({ min: 1, max: 4 }),
  seed: fc.integer({ min: 1, max: 1e6 }),
});
const format = fc.oneof(
  fc.record({
    mode: fc.constant<QuantMode>("affine"),
    bits: fc.constantFrom(2, 3, 4, 5, 6, 8),
    group: fc.constantFrom(32, 64, 128),
    scales: fc.constantFrom("float32" as const, "float16" as const, "bfloat16" as const),
  }),
  fc.constantFrom(
    { mode: "mxfp4" as QuantMode, bits: 4, group: 32, scales: "float32" as const },
    { mode: "nvfp4" as QuantMode, bits: 4, group: 16, scales: "float32" as const },
    { mode: "mxfp8" as QuantMode, bits: 8, group: 32, scales: "float32" as const },
  ),
);

interface Packed {
  readonly matrix: PackedMatrix;
  /** The same weights as a plain float32 matrix. */
  readonly plain: MlxArray;
}

/** A random packed matrix [out, columns]; to be used inside a scope. */
function randomPacked(
  out: number,
  columns: number,
  seed: number,
  {
    mode,
    bits,
    group,
    scales: type,
  }: { mode: QuantMode; bits: number; group: number; scales: "float32" | "float16" | "bfloat16" },
): Packed {
  const source = float32Array(values(out * columns, seed, 0.1), [out, columns]);
  const parts = quantize(source, group, bits, mode);
  const typed = (x: MlxArray) => (mode === "affine" ? astype(x, type) : x);
  const [scales, biases] = [typed(parts.scales), parts.biases === NONE ? NONE : typed(parts.biases)];
  const matrix = packMatrix(parts.weight, scales, biases, group, bits, mode, NONE);
  const wide = (x: MlxArray) => (mode === "affine" ? astype(x, "float32") : x);
  const plain = astype(
    dequantize(parts.weight, wide(scales), biases === NONE ? NONE : wide(biases), group, bits, mode),
    "float32",
  );
  return { matrix, plain };
}

test("packed products equal MLX's within their precision, and each row is itself whatever is beside it", () => {
  fc.assert(
    fc.property(shape, format, ({ rows, out, groups, seed }, kind) => {
      // MLX packs rows in multiples of 32.
      const columns = Math.ceil((groups * kind.group) / 32) * 32;
      scope(() => {
        const x = float32Array(values(rows * columns, seed + 1), [rows, columns]);
        const { matrix, plain } = randomPacked(out, columns, seed, kind);
        const together = toFloat32(packedMatmul(x, matrix));
        const exact = toFloat32(matmul(x, swapaxes(plain, 0, 1)));
        // Relative to what such products are like, since a single one may cancel.
        const typical = rms(toFloat32(x)) * rms(toFloat32(plain)) * Math.sqrt(columns);
        expect(rms(together.map((y, i) => y - (exact[i] ?? Number.NaN))) / typical).toBeLessThan(PACKED);
        for (const row of [0, rows >> 1, rows - 1]) {
          const alone = toFloat32(packedMatmul(slice(x, [row, 0], [row + 1, columns]), matrix));
          expect(alone).toEqual(together.slice(row * out, (row + 1) * out));
        }
        const ids = int32Array([out - 1, 0]);
        expect(relativeDifference(toFloat32(packedRows(ids, matrix)), toFloat32(take(plain, ids, 0)))).toBeLessThan(
          1e-6,
        );
        freePackedMatrix(matrix);
      });
    }),
    { numRuns: 120 },
  );
});

test("MLX's own packed product in float32 agrees", () => {
  scope(() => {
    const x = float32Array(values(5 * 192, 1), [5, 192]);
    const { weight, scales, biases } = quantize(float32Array(values(48 * 192, 2), [48, 192]), 64, 4, "affine");
    const matrix = packMatrix(weight, scales, biases, 64, 4, "affine", NONE);
    const stock = toFloat32(quantizedMatmul(x, weight, scales, biases, true, 64, 4, "affine"));
    expect(relativeDifference(toFloat32(packedMatmul(x, matrix)), stock)).toBeLessThan(PACKED);
    freePackedMatrix(matrix);
  });
});

test("plain matrices of any width in every float type, with a bias, strided rows and a residual", () => {
  fc.assert(
    fc.property(shape, fc.integer({ min: 1, max: 90 }), ({ rows, out, seed }, columns) => {
      scope(() => {
        // Rows that stand in the upper half of wider ones, and transposed ones.
        const wide = float32Array(values(rows * columns * 2, seed), [rows, columns * 2]);
        const x = slice(wide, [0, columns], [rows, 2 * columns]);
        const turned = transpose(float32Array(values(rows * columns, seed + 3), [columns, rows]), [1, 0]);
        const residual = float32Array(values(rows * out, seed + 1), [rows, out]);
        const bias = float32Array(values(out, seed + 2));
        evaluate([bias]);
        for (const type of ["float32", "float16", "bfloat16"] as const) {
          const weight = astype(float32Array(values(out * columns, seed + 4), [out, columns]), type);
          const matrix = packMatrix(weight, NONE, NONE, 0, 0, null, bias);
          for (const input of [x, turned]) {
            const wide = astype(weight, "float32");
            const product = add(matmul(input, swapaxes(wide, 0, 1)), bias);
            const typical = rms(toFloat32(input)) * rms(toFloat32(wide)) * Math.sqrt(columns);
            const error = (ours: MlxArray, theirs: MlxArray) => {
              const exact = toFloat32(theirs);
              return rms(toFloat32(ours).map((y, i) => y - (exact[i] ?? Number.NaN))) / typical;
            };
            expect(error(packedMatmulAdd(input, matrix, residual), add(residual, product))).toBeLessThan(PLAIN);
            expect(error(packedMatmul(input, matrix), product)).toBeLessThan(PLAIN);
          }
          freePackedMatrix(matrix);
        }
      });
    }),
    { numRuns: 40 },
  );
});

test("norm with products, and the feed-forward block, equal their parts", () => {
  fc.assert(
    fc.property(shape, ({ rows, out, groups, seed }) => {
      const columns = groups * 64;
      scope(() => {
        const x = float32Array(values(rows * columns, seed), [rows, columns]);
        const norm = float32Array(values(columns, seed + 1));
        evaluate([norm]);
        const kind = { mode: "affine" as const, bits: 4, group: 64, scales: "float16" as const };
        const width = 32 * Math.ceil(out / 32);
        const a = randomPacked(width, columns, seed + 2, kind).matrix;
        const b = randomPacked(width, columns, seed + 3, { ...kind, bits: 8, group: 32 }).matrix;
        const down = randomPacked(columns, width, seed + 4, { ...kind, group: 32 }).matrix;
        const normed = packedNorm(x, norm, 1e-5);
        expect(relativeDifference(toFloat32(normed), toFloat32(rmsNorm(x, norm, 1e-5)))).toBeLessThan(1e-6);
        const both = normMatmul(x, norm, 1e-5, a, b);
        const [gate, up] = [packedMatmul(normed, a), packedMatmul(normed, b)];
        expect(toFloat32(slice(both, [0, 0], [rows, width]))).toEqual(toFloat32(gate));
        expect(toFloat32(slice(both, [0, width], [rows, 2 * width]))).toEqual(toFloat32(up));
        const unit = multiply(multiply(gate, sigmoid(gate)), up);
        const parts = toFloat32(packedMatmulAdd(unit, down, x));
        const block = toFloat32(feedForward(x, norm, 1e-5, a, b, down, "silu"));
        expect(relativeDifference(block, parts)).toBeLessThan(1e-4);
        for (const matrix of [a, b, down]) freePackedMatrix(matrix);
      });
    }),
    { numRuns: 40 },
  );
});

test("infinities, NaNs and denormals stay in their row", () => {
  scope(() => {
    const { matrix } = randomPacked(40, 128, 3, { mode: "affine", bits: 4, group: 32, scales: "float16" });
    const clean = values(6 * 128, 4);
    const expected = toFloat32(packedMatmul(float32Array(clean, [6, 128]), matrix));
    for (const strange of [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN, 1e-40, 3e38]) {
      const spoiled = clean.slice();
      spoiled[2 * 128 + 17] = strange;
      const out = toFloat32(packedMatmul(float32Array(spoiled, [6, 128]), matrix));
      expect(out.subarray(0, 80)).toEqual(expected.subarray(0, 80));
      expect(out.subarray(120)).toEqual(expected.subarray(120));
      if (!Number.isFinite(strange)) expect(out.subarray(80, 120).every((y) => !Number.isFinite(y))).toBe(true);
    }
    freePackedMatrix(matrix);
  });
});

describe("refusals", () => {
  const refused = (pattern: RegExp, body: () => void) =>
    scope(() => {
      expect(body).toThrow(pattern);
    });

  test("of packing", () => {
    const words = () => float32Array(new Float32Array(8), [1, 8]);
    refused(/packed weight is uint32/, () => packMatrix(words(), words(), words(), 32, 4, "affine", NONE));
    refused(/two axes/, () => packMatrix(float32Array([1]), NONE, NONE, 0, 0, null, NONE));
    refused(/float32, float16 or bfloat16/, () => packMatrix(int32Array([1, 2], [1, 2]), NONE, NONE, 0, 0, null, NONE));
    // 48 columns in groups of 32: the scales of one group.
    const weight = () => astype(float32Array(new Float32Array(6), [1, 6]), "uint32");
    const one = () => float32Array([1], [1, 1]);
    refused(/48 columns are not a multiple of the group of 32/, () =>
      packMatrix(weight(), one(), one(), 32, 4, "affine", NONE),
    );
    refused(/must be float32\[1\]/, () => packMatrix(one(), NONE, NONE, 0, 0, null, float32Array([1, 2])));
  });

  test("of products and of attention", () => {
    scope(() => {
      const matrix = packMatrix(float32Array(values(12, 1), [3, 4]), NONE, NONE, 0, 0, null, NONE);
      expect(() => packedMatmul(float32Array(values(10, 1), [2, 5]), matrix)).toThrow(/\[2,5\], wanted \[rows,4\]/);
      expect(() => packedMatmul(astype(float32Array(values(8, 1), [2, 4]), "float16"), matrix)).toThrow(/are float32/);
      freePackedMatrix(matrix);
      const shared = {
        scale: 1,
        interleaved: false,
        qNorm: NONE,
        qEps: 0,
        kNorm: NONE,
        kEps: 0,
        softCap: 0,
        sinks: NONE,
      };
      expect(() => newAttentionPlan({ ...shared, heads: 3, kvHeads: 2, headDim: 8, ropeDims: 8 })).toThrow(/3 heads/);
      expect(() => newKvStore(1, 48, "q8", 48)).toThrow(/groups of 48/);
      const plan = newAttentionPlan({ ...shared, heads: 1, kvHeads: 1, headDim: 8, ropeDims: 0 });
      const store = newKvStore(1, 8, "float32", 0);
      const row = { store, after: NONE, start: 3, count: 1, window: 0 };
      const x = float32Array(values(24, 1), [2, 12]);
      const weights = attentionWeights(12, 8, 8, 1);
      const attend = (rows: AttendedRow[], part = {}) => selfAttention(plan, { ...weights, ...part }, x, NONE, rows);
      expect(() => attend([row])).toThrow(/the rows have 1 tokens, x 2/);
      expect(() => attend([{ ...row, start: 300, count: 2 }])).toThrow(/token 300 is not held/);
      expect(() => attend([row], { k: weights.o })).toThrow(/take different inputs/);
      expect(() => attend([row], { o: weights.v })).toThrow(/o does not lead back/);
      expect(() => attend([row], { norm: float32Array([1]) })).toThrow(/the norm: must be float32\[12\]/);
      freeProjections(weights);
      expect(() => setCpuThreads(-1)).toThrow(/-1 is not from 1 to 1024/);
      expect(() => setCpuThreads(1025)).toThrow(/1025 is not from 1 to 1024/);
      freeAttentionPlan(plan);
      freeKvStore(store);
    });
  });
});

test("the largest of float32 rows is MLX's, ties, infinities and NaNs among them", () => {
  const number = fc.oneof(
    { weight: 8, arbitrary: fc.integer({ min: -3, max: 3 }) },
    fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -0),
  );
  const shape = fc.record({
    rows: fc.integer({ min: 1, max: 5 }),
    columns: fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(1023, 1024, 1025, 3000)),
    some: fc.array(number, { minLength: 1, maxLength: 40 }),
    skipped: fc.integer({ min: 0, max: 2 }),
  });
  fc.assert(
    fc.property(shape, ({ rows, columns, some, skipped }) => {
      scope(() => {
        const every = Float32Array.from(
          { length: rows * columns },
          (_, i) => some[(i * 7 + (i >> 5)) % some.length] ?? 0,
        );
        const whole = float32Array(every, [rows, columns]);
        const x = slice(whole, [0, Math.min(skipped, columns - 1)], [rows, columns]);
        expect([...toUint32(argmax(x, -1))]).toEqual([...toUint32(argmax(x, 1))]);
      });
    }),
    { numRuns: 300 },
  );
});

test("ids outside of a table give rows of NaN", () => {
  scope(() => {
    const table = packMatrix(float32Array(values(12, 1), [3, 4]), NONE, NONE, 0, 0, null, NONE);
    const rows = toFloat32(packedRows(int32Array([2, 3, -1]), table));
    expect(rows.slice(0, 4)).toEqual(values(12, 1).slice(8, 12));
    expect([...rows.slice(4)].every(Number.isNaN)).toBe(true);
    freePackedMatrix(table);
  });
});

test("self-attention over several ragged rows equals MLX's, fed in any pieces", () => {
  const spec = fc.record({
    kvHeads: fc.integer({ min: 1, max: 3 }),
    shared: fc.integer({ min: 1, max: 4 }),
    headDim: fc.constantFrom(8, 24, 32, 64, 80, 128),
    features: fc.constantFrom(16, 40, 72),
    lengths: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 3 }),
    piece: fc.integer({ min: 1, max: 17 }),
    seed: fc.integer({ min: 1, max: 1e6 }),
  });
  fc.assert(
    fc.property(spec, ({ kvHeads, shared, headDim, features, lengths, piece, seed }) => {
      const heads = kvHeads * shared;
      const shape = { heads, kvHeads, headDim, features, scale: headDim ** -0.5, seed };
      const inputs = lengths.map((length, row) => values(length * features, seed + row));
      const wanted = inputs.map((input, row) => stockAttention(input, lengths[row] ?? 0, shape));
      const plan = newAttentionPlan({
        heads,
        kvHeads,
        headDim,
        scale: shape.scale,
        ropeDims: headDim,
        interleaved: false,
        qNorm: NONE,
        qEps: 0,
        kNorm: NONE,
        kEps: 0,
        softCap: 0,
        sinks: NONE,
      });
      const weights = scope(() => {
        const made = attentionWeights(features, heads * headDim, kvHeads * headDim, seed);
        return { ...made, norm: keep(made.norm) };
      });
      const rates = Float64Array.from({ length: headDim / 2 }, (_, j) => 10000 ** ((-2 * j) / headDim));
      const stores = lengths.map(() => newKvStore(kvHeads, headDim, "float32", 0));
      const got: number[][] = lengths.map(() => []);
      let after = NONE;
      for (let start = 0; start < Math.max(...lengths); start += piece) {
        const active = lengths.flatMap((length, row) =>
          start < length ? [{ row, count: Math.min(piece, length - start) }] : [],
        );
        const next = scope(() => {
          const x = active.flatMap(({ row, count }) => [
            ...(inputs[row] ?? []).slice(start * features, (start + count) * features),
          ]);
          const total = active.reduce((sum, { count }) => sum + count, 0);
          const positions = int32Array(
            active.flatMap(({ count }) => Array.from({ length: count }, (_, i) => start + i)),
          );
          const rows = active.map(({ row, count }) => ({
            store: stores[row] as never,
            after,
            start,
            count,
            window: 0,
          }));
          const turns = ropeTable(positions, rates, 1);
          const { out, token } = selfAttention(plan, weights, float32Array(x, [total, features]), turns, rows);
          const all = toFloat32(out);
          let at = 0;
          for (const { row, count } of active) {
            got[row]?.push(...all.slice(at, at + count * features));
            at += count * features;
          }
          return keep(token);
        });
        if (after !== NONE) free(after);
        after = next;
      }
      free(after);
      for (const [row, out] of got.entries()) {
        expect(relativeDifference(Float32Array.from(out), wanted[row] ?? new Float32Array())).toBeLessThan(PLAIN);
      }
      for (const store of stores) freeKvStore(store);
      free(weights.norm);
      freeProjections(weights);
      freeAttentionPlan(plan);
    }),
    { numRuns: 40 },
  );
});

const EPS = 1e-5;

/** Plain weights of a block, the same for a seed: norm, then the projections [out, in] with what feeds them scaled to 1. */
function plainWeights(features: number, width: number, kvWidth: number, seed: number) {
  const matrix = (rows: number, columns: number, salt: number) =>
    float32Array(
      values(rows * columns, seed * 7 + salt).map((x) => x / Math.sqrt(columns)),
      [rows, columns],
    );
  return {
    norm: float32Array(
      values(features, seed * 7).map((x) => 1 + x / 4),
      [features],
    ),
    q: matrix(width, features, 1),
    k: matrix(kvWidth, features, 2),
    v: matrix(kvWidth, features, 3),
    o: matrix(features, width, 4),
  };
}

function attentionWeights(features: number, width: number, kvWidth: number, seed: number): AttentionWeights {
  const { norm, q, k, v, o } = plainWeights(features, width, kvWidth, seed);
  const pack = (weight: MlxArray) => packMatrix(weight, NONE, NONE, 0, 0, null, NONE);
  evaluate([norm]);
  return { norm, eps: EPS, q: pack(q), k: pack(k), v: pack(v), o: pack(o) };
}

function freeProjections({ q, k, v, o }: AttentionWeights): void {
  for (const matrix of [q, k, v, o]) freePackedMatrix(matrix);
}

interface AttentionShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly features: number;
  readonly scale: number;
  readonly seed: number;
}

/** The block by MLX's own ops, over a whole sequence: [length, features]. */
function stockAttention(input: Float32Array, length: number, shape: AttentionShape): Float32Array {
  const { heads, kvHeads, headDim, features, scale, seed } = shape;
  return scope(() => {
    const { norm, q, k, v, o } = plainWeights(features, heads * headDim, kvHeads * headDim, seed);
    const x = float32Array(input, [length, features]);
    const normed = rmsNorm(x, norm, EPS);
    const byHead = (weight: MlxArray, count: number) =>
      transpose(reshape(matmul(normed, transpose(weight, [1, 0])), [1, length, count, headDim]), [0, 2, 1, 3]);
    const turned = (y: MlxArray) => rope(y, headDim, false, 10000, 1, 0);
    const out = attention(turned(byHead(q, heads)), turned(byHead(k, kvHeads)), byHead(v, kvHeads), scale, "causal");
    const joined = reshape(transpose(out, [0, 2, 1, 3]), [length, heads * headDim]);
    return toFloat32(add(x, matmul(joined, transpose(o, [1, 0]))));
  });
}
