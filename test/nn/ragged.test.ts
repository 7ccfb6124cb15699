/**
 * Ragged forwards over the golden models (batching.md B1): rows of any length, window and history in one forward give
 * bit for bit what each gives alone, however it is cut into steps, and tapping layers changes nothing: what lossless
 * speculation stands on. Both CPU backends, in float32 as on every CPU device.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import { kvStates } from "../../src/cache/state-factory.ts";
import { int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { type LayerState, type StateFactory, StepBatch } from "../../src/nn/layer-state.ts";
import { type ComputeChoice, chooseCompute } from "../../src/nn/select.ts";
import { goldenCases, goldenRoot } from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";

setDefaultTimeout(60_000);
beforeAll(openTestMlx);
afterAll(() => expect(liveArrays()).toBe(0));

/** One sequence, fed in two worlds: beside others, and alone. */
class Twin {
  readonly beside: LayerState[];
  readonly alone: LayerState[];
  length = 0;

  constructor(model: TargetModel, factory: StateFactory) {
    this.beside = model.newStates(factory, 600);
    this.alone = model.newStates(factory, 600);
  }

  trim(count: number): void {
    for (const state of [...this.beside, ...this.alone]) state.trim(count);
    this.length -= count;
  }

  dispose(): void {
    for (const state of [...this.beside, ...this.alone]) state.dispose();
  }
}

interface Part {
  readonly states: LayerState[];
  readonly offset: number;
  readonly ids: readonly number[];
}

interface Computed {
  readonly hidden: Float32Array;
  readonly logits: Float32Array;
  readonly taps: Float32Array;
}

function forward(model: TargetModel, parts: readonly Part[], taps: readonly number[] = []): Computed {
  return scope(() => {
    const batch = new StepBatch(parts.map(({ states, offset, ids }) => ({ states, offset, count: ids.length })));
    const result = model.forward(int32Array(parts.flatMap((part) => [...part.ids])), batch, taps);
    return {
      hidden: toFloat32(result.hidden),
      logits: toFloat32(model.logits(result.hidden)),
      taps: result.taps === null ? new Float32Array(0) : toFloat32(result.taps),
    };
  });
}

function rowsOf(values: Float32Array, start: number, count: number, total: number): Float32Array {
  const width = values.length / total;
  return values.subarray(start * width, (start + count) * width);
}

const same = (a: Float32Array, b: Float32Array) =>
  Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer, b.byteOffset, b.byteLength));

/** Which rows take part in a round, with how many tokens, and how many of them are taken back. */
const rounds = fc.array(
  fc.array(
    fc.option(fc.record({ count: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 12 })), trim: fc.nat(3) }), {
      freq: 3,
    }),
    { minLength: 2, maxLength: 4 },
  ),
  { minLength: 2, maxLength: 5 },
);

const id = (row: number, position: number) => (row * 71 + position * 37 + position * position) % 288;

type Plan = readonly (readonly ({ readonly count: number; readonly trim: number } | null)[])[];

function run(model: TargetModel, factory: StateFactory, plan: Plan): void {
  const twins = Array.from({ length: 4 }, () => new Twin(model, factory));
  for (const round of plan) {
    const chosen = round.flatMap((part, row) => {
      const twin = twins[row];
      if (part === null || twin === undefined) return [];
      const ids = Array.from({ length: part.count }, (_, i) => id(row, twin.length + i));
      return [{ twin, ids, trim: Math.min(part.trim, part.count - 1) }];
    });
    if (chosen.length === 0) continue;
    const total = chosen.reduce((sum, { ids }) => sum + ids.length, 0);
    const together = forward(
      model,
      chosen.map(({ twin, ids }) => ({ states: twin.beside, offset: twin.length, ids })),
    );
    let start = 0;
    for (const { twin, ids, trim } of chosen) {
      const alone = forward(model, [{ states: twin.alone, offset: twin.length, ids }]);
      expect(same(rowsOf(together.hidden, start, ids.length, total), alone.hidden)).toBe(true);
      expect(same(rowsOf(together.logits, start, ids.length, total), alone.logits)).toBe(true);
      start += ids.length;
      twin.length += ids.length;
      twin.trim(trim);
    }
  }
  for (const twin of twins) twin.dispose();
}

const root = goldenRoot("dense");
const names = goldenCases("dense", ["llama", "qwen2", "qwen3"]);

const listed = names.flatMap((name) => (["stock", "fused"] as const).map((backend) => [name, backend] as const));

describe.each(listed)("%s, %s", (name, backend) => {
  let model: TargetModel;
  let factory: StateFactory;
  beforeAll(() => {
    const { compute, dtype }: ComputeChoice = chooseCompute({ MLX_DSPARK_CPU: backend });
    model = loadTarget(join(root, name), compute, { dtype }).model;
    factory = kvStates(0, compute.stateLayout);
  });
  afterAll(() => model.dispose());

  test("rows beside each other equal rows alone, bit for bit", () => {
    fc.assert(
      fc.property(rounds, (plan) => run(model, factory, plan)),
      { numRuns: 4 },
    );
  });

  test("a sequence gives the same bits however it is cut into steps", () => {
    const length = 40;
    const ids = Array.from({ length }, (_, position) => id(1, position));
    const single = model.newStates(factory, length);
    const alone = ids.map((one, offset) => forward(model, [{ states: single, offset, ids: [one] }]));
    for (const state of single) state.dispose();
    const cuts = fc.array(fc.integer({ min: 1, max: 17 }), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(cuts, (counts) => {
        const states = model.newStates(factory, length);
        let offset = 0;
        for (const count of [...counts, length]) {
          const part = ids.slice(offset, offset + count);
          if (part.length === 0) break;
          const { hidden, logits } = forward(model, [{ states, offset, ids: part }]);
          for (let i = 0; i < part.length; i++) {
            const one = alone[offset + i];
            if (one === undefined) throw new Error("no such position");
            expect(same(rowsOf(hidden, i, 1, part.length), one.hidden)).toBe(true);
            expect(same(rowsOf(logits, i, 1, part.length), one.logits)).toBe(true);
          }
          offset += part.length;
        }
        for (const state of states) state.dispose();
      }),
      { numRuns: 4 },
    );
  });

  test("a tapped forward equals the plain one, and taps are the layers' outputs row by row", () => {
    const all = Array.from({ length: model.capabilities.tapLayers }, (_, layer) => layer);
    const states = [0, 1, 2].map(() => model.newStates(factory, 100));
    const part = (index: number, ids: readonly number[]) => ({ states: states[index] ?? [], offset: 0, ids });
    const [first, second] = [
      [3, 1, 4, 1, 5],
      [9, 2, 6],
    ];
    const plain = forward(model, [part(0, first ?? [])]);
    const tapped = forward(model, [part(1, first ?? []), part(2, second ?? [])], all);
    expect(same(rowsOf(tapped.hidden, 0, 5, 8), plain.hidden)).toBe(true);
    expect(tapped.taps.length).toBe(8 * all.length * model.hiddenSize);
    // The last layer's tap is the residual stream itself.
    for (let row = 0; row < 8; row++) {
      const taps = rowsOf(tapped.taps, row, 1, 8);
      const last = taps.subarray((all.length - 1) * model.hiddenSize);
      expect(same(last, rowsOf(tapped.hidden, row, 1, 8))).toBe(true);
    }
    for (const state of states.flat()) state.dispose();
  });
});
