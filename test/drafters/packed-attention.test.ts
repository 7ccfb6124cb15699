/**
 * The fused attention of drafters against the one of stock ops, on random layers, masks and contexts; its bits over rows,
 * threads and the way in which a context came about; and what it refuses.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { BlockAttention, type DraftAttention } from "../../src/drafters/attention.ts";
import type { Context } from "../../src/drafters/context.ts";
import { PackedAttention } from "../../src/drafters/packed-attention.ts";
import { PackedContext } from "../../src/drafters/packed-context.ts";
import type { BackboneSettings, LayerMask } from "../../src/drafters/settings.ts";
import {
  concatenate,
  evaluate,
  float32Array,
  keep,
  liveArrays,
  type MlxArray,
  NONE,
  scope,
  toFloat32,
} from "../../src/mlx/array.ts";
import {
  cpuThreads,
  freeAttentionPlan,
  freeKvStore,
  liveCpuObjects,
  newAttentionPlan,
  newKvStore,
  setCpuThreads,
} from "../../src/mlx/cpu.ts";
import { appendPacked, readKvStore } from "../../src/mlx/cpu-draft.ts";
import type { ContextAttention } from "../../src/nn/compute.ts";
import { fusedCompute } from "../../src/nn/fused/compute.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import { makeRope } from "../../src/nn/rope.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import type { LinearWeights, NormWeights } from "../../src/nn/weights.ts";
import { openTestMlx } from "../support/native.ts";

setDefaultTimeout(60_000);
beforeAll(openTestMlx);
afterAll(() => expect([liveArrays(), liveCpuObjects()]).toEqual([0, 0]));

const HIDDEN = 24;
/** MLX rounds the angles of stock rotations to float32 first: at position 1000 they are off by up to 6e-5. */
const CLOSE = 2e-3;

/** Deterministic values around zero. */
function values(count: number, seed: number, scale = 1): Float32Array {
  let state = seed >>> 0 || 1;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2147483648 - 1) * scale;
  });
}

function held(shape: readonly number[], seed: number, scale: number, offset = 0): MlxArray {
  const count = shape.reduce((product, n) => product * n, 1);
  return scope(() => {
    const x = keep(
      float32Array(
        values(count, seed, scale).map((y) => y + offset),
        shape,
      ),
    );
    evaluate([x]);
    return x;
  });
}

interface Setting {
  readonly kvHeads: number;
  readonly shared: number;
  readonly headDim: number;
  readonly gatedQ: boolean;
  readonly valuesFromKeys: boolean;
  readonly family: "qwen" | "gemma4";
  readonly sinks: boolean;
  readonly traditional: boolean;
  readonly mask: LayerMask;
  readonly seed: number;
}

const masks: fc.Arbitrary<LayerMask> = fc.record({
  window: fc.constantFrom(null, 1, 5, 300),
  causal: fc.boolean(),
  windowsBlock: fc.boolean(),
});
const settings: fc.Arbitrary<Setting> = fc.record({
  kvHeads: fc.integer({ min: 1, max: 3 }),
  shared: fc.integer({ min: 1, max: 3 }),
  headDim: fc.constantFrom(8, 16, 40),
  gatedQ: fc.boolean(),
  valuesFromKeys: fc.boolean(),
  family: fc.constantFrom("qwen", "gemma4"),
  sinks: fc.boolean(),
  traditional: fc.boolean(),
  mask: masks,
  seed: fc.integer({ min: 1, max: 1e6 }),
});

function backboneOf({ kvHeads, shared, headDim, traditional, ...rest }: Setting): BackboneSettings {
  return {
    ...rest,
    hidden: HIDDEN,
    intermediate: 1,
    heads: kvHeads * shared,
    kvHeads,
    headDim,
    eps: 1e-6,
    rope: { dims: headDim, traditional, base: 10_000, scaling: { kind: "none" } },
    scale: headDim ** -0.5,
    attentionBias: false,
    offsetNorms: false,
    layers: [rest.mask],
    conv: null,
  };
}

/** The same layer twice: of stock ops, and of the fused primitive. Weights are made anew for each, who own them. */
function attentions(setting: Setting): { stock: DraftAttention; packed: DraftAttention; block: ContextAttention } {
  const backbone = backboneOf(setting);
  const { heads, kvHeads, headDim, eps, gatedQ, valuesFromKeys, family, sinks } = backbone;
  const { seed } = setting;
  const linear = (out: number, inFeatures: number, salt: number): LinearWeights => ({
    matrix: { kind: "plain", weight: held([out, inFeatures], seed + salt, 0.5) },
    bias: NONE,
    inFeatures,
    outFeatures: out,
  });
  const q = () => linear(heads * headDim * (gatedQ ? 2 : 1), HIDDEN, 1);
  const keyValue = () => linear(kvHeads * headDim * (valuesFromKeys ? 1 : 2), HIDDEN, 2);
  const output = () => linear(HIDDEN, heads * headDim, 3);
  const norm = (salt: number): NormWeights => ({ weight: held([headDim], seed + salt, 0.3, 1), eps });
  const sinkBias = () => (sinks ? held([heads], seed + 6, 2) : NONE);
  const stock = stockCompute("float32");
  const fused = fusedCompute();
  if (fused.contextAttention === null) throw new Error("the fused backend attends to contexts");
  const block = fused.contextAttention({
    ...backbone,
    norm: null,
    q: q(),
    keyValue: keyValue(),
    qNorm: norm(4),
    kNorm: norm(5),
    gated: gatedQ,
    valueEps: family === "gemma4" ? eps : null,
    sinks: sinkBias(),
  });
  return {
    stock: new BlockAttention(backbone, setting.mask, makeRope(backbone.rope), {
      query: stock.linear(q()),
      keyValue: stock.linear(keyValue()),
      output: stock.linear(output()),
      queryNorm: norm(4),
      keyNorm: norm(5),
      sinks: sinkBias(),
    }),
    packed: new PackedAttention(backbone, setting.mask, block, fused.linear(output())),
    block,
  };
}

function batchOf(position: number, count: number): StepBatch {
  return new StepBatch([{ states: [], count, offset: position }]);
}

/** Appends rows of c that depend on their positions alone, in pieces. */
function fill(attention: DraftAttention, context: Context, pieces: readonly number[], seed: number): void {
  for (const count of pieces) {
    const position = context.end;
    scope(() => {
      const c = float32Array(
        Array.from({ length: count }, (_, i) => [...values(HIDDEN, seed + 7919 * (position + i))]).flat(),
        [count, HIDDEN],
      );
      attention.append(c, batchOf(position, count), context, position, null);
    });
    evaluate(context.arrays());
  }
}

/** Slots of each row as the attention sees them, [width, HIDDEN] row after row. */
function attend(
  attention: DraftAttention,
  contexts: readonly Context[],
  width: number,
  limit: number | null,
  seed: number,
): Float32Array[] {
  const x = contexts.map((context) => float32Array(values(width * HIDDEN, seed + 31 * context.end), [width, HIDDEN]));
  const batch = new StepBatch(contexts.map(({ end }) => ({ states: [], count: width, offset: end })));
  const rows = contexts.map((context) => ({ context, position: context.end }));
  const out = toFloat32(attention.apply(concatenate(x, 0), batch, rows, width, limit));
  return contexts.map((_, i) => out.slice(i * width * HIDDEN, (i + 1) * width * HIDDEN));
}

function furthest(a: Float32Array, b: Float32Array): number {
  expect(a.length).toBe(b.length);
  return a.reduce((most, x, i) => Math.max(most, Math.abs(x - (b[i] ?? Number.NaN))), 0);
}

test("it is what stock ops compute", () => {
  const run = fc.record({
    setting: settings,
    // Dynamic positions from a chunk's beginning to beyond its end; an empty context is one, too.
    contexts: fc.array(fc.array(fc.integer({ min: 1, max: 140 }), { maxLength: 4 }), { minLength: 1, maxLength: 3 }),
    start: fc.constantFrom(0, 5, 1000),
    width: fc.integer({ min: 1, max: 17 }),
    limit: fc.constantFrom(null, 1, 100),
  });
  fc.assert(
    fc.property(run, ({ setting, contexts, start, width, limit }) => {
      const { stock, packed } = attentions(setting);
      const held = [stock, packed].map((attention) =>
        contexts.map((pieces) => {
          const context = attention.newContext(null, 2048, start);
          fill(attention, context, pieces, setting.seed);
          return context;
        }),
      );
      const [of = [], own = []] = held;
      scope(() => {
        const wanted = attend(stock, of, width, limit, setting.seed);
        const found = attend(packed, own, width, limit, setting.seed);
        for (const [row, x] of wanted.entries()) expect(furthest(x, found[row] ?? x)).toBeLessThan(CLOSE);
        for (const [row, context] of of.entries()) {
          const [a, b] = [context.all(), own[row]?.all() ?? null];
          expect(b === null).toBe(a === null);
          if (a === null || b === null) continue;
          expect(furthest(toFloat32(a.keys), toFloat32(b.keys))).toBeLessThan(CLOSE);
          expect(furthest(toFloat32(a.values), toFloat32(b.values))).toBeLessThan(CLOSE);
        }
      });
      for (const context of held.flat()) context.dispose();
      stock.dispose();
      packed.dispose();
    }),
    { numRuns: 60 },
  );
});

test("a block's bits depend neither on rows beside it, nor on threads, nor on how its context was appended", () => {
  const threads = cpuThreads();
  const run = fc.record({
    setting: settings,
    pieces: fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 4 }),
    width: fc.integer({ min: 1, max: 9 }),
  });
  fc.assert(
    fc.property(run, ({ setting, pieces, width }) => {
      const { stock, packed } = attentions(setting);
      stock.dispose();
      const made = (parts: readonly number[]) => {
        const context = packed.newContext(null, 2048, 0);
        fill(packed, context, parts, setting.seed);
        return context;
      };
      const total = pieces.reduce((sum, n) => sum + n, 0);
      const [context, whole, other] = [made(pieces), made([total]), made([3])];
      const results = [1, 2].flatMap((count) => {
        setCpuThreads(count);
        return scope(() => [
          ...attend(packed, [context], width, null, setting.seed),
          // Nothing of a block stays behind it.
          ...attend(packed, [context], width, null, setting.seed),
          ...attend(packed, [whole], width, null, setting.seed),
          ...attend(packed, [other, context], width, null, setting.seed).slice(1),
        ]);
      });
      for (const result of results.slice(1)) expect(result).toEqual(results[0] ?? result);
      for (const one of [context, whole, other]) one.dispose();
      packed.dispose();
    }),
    { numRuns: 20 },
  );
  setCpuThreads(threads);
});

test("held rows are the newest positions in order, whatever happened before", () => {
  const step = fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({ append: fc.integer({ min: 1, max: 300 }), skip: fc.constantFrom(0, 0, 0, 2) }),
    },
    { weight: 1, arbitrary: fc.record({ trim: fc.integer({ min: 0, max: 60 }) }) },
  );
  const setting = fc.record({
    visible: fc.constantFrom(null, 1, 7, 40),
    start: fc.constantFrom(0, 13, 777),
    steps: fc.array(step, { maxLength: 12 }),
  });
  // One feature a key, never rotated: a row is its own value.
  const plan = newAttentionPlan({
    heads: 1,
    kvHeads: 1,
    headDim: 1,
    scale: 1,
    ropeDims: 0,
    interleaved: false,
    qNorm: NONE,
    qEps: 0,
    kNorm: NONE,
    kEps: 0,
    softCap: 0,
    sinks: NONE,
  });
  fc.assert(
    fc.property(setting, ({ visible, start, steps }) => {
      const layer = new PackedContext(1, 1, visible, start);
      const model = new Map<number, number>();
      let next = 1;
      for (const step of steps) {
        scope(() => {
          if ("append" in step) {
            const position = layer.end + step.skip;
            if (step.skip > 0) model.clear();
            const own = Array.from({ length: step.append }, () => next++);
            for (const [i, value] of own.entries()) model.set(position + i, value);
            const kv = float32Array(
              own.flatMap((value) => [value, -value]),
              [own.length, 2],
            );
            layer.append(own.length, position, (row) => appendPacked(plan, kv, NONE, [row]));
          } else {
            const length = Math.max(0, layer.end - step.trim);
            for (const position of model.keys()) if (position >= length) model.delete(position);
            layer.trim(length);
            expect(layer.end).toBe(length);
          }
          const all = layer.all();
          const found = all === null ? [] : [...toFloat32(all.keys)];
          if (layer.held === 0) model.clear();
          const newest = layer.held === 0 ? [] : [...model.values()].slice(-layer.held);
          expect(found).toEqual(newest);
          if (all !== null) expect([...toFloat32(all.values)]).toEqual(newest.map((x) => -x));
          if ("append" in step) expect(layer.held).toBeGreaterThanOrEqual(Math.min(model.size, visible ?? model.size));
        });
        evaluate(layer.arrays());
      }
      layer.dispose();
    }),
    { numRuns: 150 },
  );
  freeAttentionPlan(plan);
});

test("blocks that are too long, and rows that are not held, are refused by name", () => {
  const setting: Setting = {
    kvHeads: 1,
    shared: 1,
    headDim: 8,
    gatedQ: false,
    valuesFromKeys: false,
    family: "qwen",
    sinks: false,
    traditional: false,
    mask: { window: null, causal: false, windowsBlock: false },
    seed: 1,
  };
  const { stock, packed, block } = attentions(setting);
  const context = packed.newContext(null, 2048, 0);
  const other = stock.newContext(null, 2048, 0);
  const store = newKvStore(1, 8, "float32", 0);
  scope(() => {
    const x = (count: number) => float32Array(new Float32Array(count * HIDDEN), [count, HIDDEN]);
    const visible = { causal: false, windowed: false };
    const row = (count: number, first: number, start: number) => ({
      store,
      after: NONE,
      start,
      count,
      window: 0,
      first,
    });
    const attended = (count: number, first: number, start: number) =>
      block.attend(x(count), batchOf(0, count), [row(count, first, start)], visible);
    expect(() => attended(257, 0, 0)).toThrow("257 tokens is too long");
    expect(() => attended(2, 0, 1)).toThrow("tokens 0 to 1 are not held");
    expect(() => attended(2, 1, 0)).toThrow("tokens 1 to 0 are not held");
    expect(() => block.attend(x(3), batchOf(0, 3), [row(2, 0, 0)], visible)).toThrow("the rows have 2 tokens");
    expect(() => readKvStore(store, NONE, 0, 1)).toThrow("tokens 0 to 1 are not held");
    expect(() => attend(packed, [other], 1, null, 1)).toThrow("another kind of attention");
    expect(() => attend(stock, [context], 1, null, 1)).toThrow("another kind of attention");
  });
  const quantized = newKvStore(1, 32, "q8", 32);
  scope(() => expect(() => readKvStore(quantized, NONE, 0, 0)).toThrow("only float32 stores are read"));
  for (const made of [store, quantized]) freeKvStore(made);
  for (const made of [context, other, packed, stock]) made.dispose();
});
