/** A layer's context against a list of rows: appended, cut, written behind, grown and compacted at random. */
import { afterEach, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { ContextLayer } from "../../src/drafters/context.ts";
import { evaluate, float32Array, liveArrays, type MlxArray, scope, toFloat32 } from "../../src/mlx/array.ts";
import { activeBytes, peakBytes, resetPeak } from "../../src/mlx/memory.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

/** Rows [1, 1, n, 1] with these values. */
function rows(values: readonly number[]): MlxArray {
  return float32Array(values, [1, 1, values.length, 1]);
}

type Action =
  | { readonly kind: "append"; readonly count: number }
  | { readonly kind: "block"; readonly width: number }
  | { readonly kind: "trim"; readonly by: number };

const actions: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("append" as const), count: fc.integer({ min: 1, max: 300 }) }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("block" as const), width: fc.integer({ min: 1, max: 16 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("trim" as const), by: fc.integer({ min: 0, max: 60 }) }) },
);

test("held rows are the newest positions in order, whatever happened before", () => {
  const setting = fc.record({
    visible: fc.constantFrom(null, 1, 7, 40),
    start: fc.constantFrom(0, 13),
    steps: fc.array(actions, { maxLength: 12 }),
  });
  fc.assert(
    fc.property(setting, ({ visible, start, steps }) => {
      const layer = new ContextLayer(visible, 4096, start);
      let next = 1;
      /** Values by position; positions before `start` were never given. */
      const model: number[] = [];
      for (const step of steps) {
        scope(() => {
          if (step.kind === "append") {
            const values = Array.from({ length: step.count }, () => next++);
            layer.append(rows(values), rows(values.map((x) => -x)), start + model.length);
            model.push(...values);
          } else if (step.kind === "trim") {
            model.length = Math.max(0, model.length - step.by);
            layer.trim(start + model.length);
          } else {
            const block = Array.from({ length: step.width }, () => next++);
            const shown = Math.min(layer.held, visible ?? Number.POSITIVE_INFINITY);
            const seen = layer.withBlock(rows(block), rows(block.map((x) => -x)), shown);
            const wanted = [...model.slice(model.length - shown), ...block];
            expect([...toFloat32(seen.keys)]).toEqual(wanted);
            expect([...toFloat32(seen.values)]).toEqual(wanted.map((x) => -x));
          }
          expect(layer.end).toBe(start + model.length);
          const all = layer.all();
          const held = all === null ? [] : [...toFloat32(all.keys)];
          expect(held).toEqual(model.slice(model.length - layer.held));
        });
      }
      layer.dispose();
    }),
    { numRuns: 150 },
  );
});

test("what a block can see is never forgotten, and little more is kept", () => {
  const layer = new ContextLayer(30, 4096, 0);
  for (let position = 0; position < 5000; position++) {
    scope(() => layer.append(rows([position]), rows([position]), position));
    evaluate(layer.arrays());
    expect(layer.held).toBeGreaterThanOrEqual(Math.min(position + 1, 30));
    expect(layer.bytes).toBeLessThanOrEqual(2 * 4 * 512);
  }
  layer.dispose();
});

test("a gap before appended rows empties the context: they stand at their own position", () => {
  const layer = new ContextLayer(8, 4096, 0);
  scope(() => {
    layer.append(rows([1, 2, 3]), rows([1, 2, 3]), 0);
    layer.append(rows([9]), rows([9]), 20);
    expect([layer.held, layer.end]).toEqual([1, 21]);
    expect(() => layer.append(rows([5]), rows([5]), 20)).toThrow("already in the context");
    expect(() => layer.trim(22)).toThrow("cannot trim");
    layer.trim(4);
    expect([layer.held, layer.end]).toEqual([0, 4]);
  });
  layer.dispose();
});

test("appending and drafting copy no context: a round's peak stays far below its size", () => {
  const [heads, width, length] = [4, 64, 8000];
  const layer = new ContextLayer(null, 1 << 20, 0);
  const shape = (n: number) => [1, heads, n, width];
  const filled = (n: number) => float32Array(new Float32Array(heads * n * width), shape(n));
  scope(() => layer.append(filled(length), filled(length), 0));
  evaluate(layer.arrays());
  const before = layer.bytes;
  for (let round = 0; round < 20; round++) {
    resetPeak();
    const active = activeBytes();
    scope(() => layer.withBlock(filled(8), filled(8), layer.held));
    evaluate(layer.arrays());
    scope(() => layer.append(filled(3), filled(3), layer.end));
    evaluate(layer.arrays());
    expect(peakBytes() - active).toBeLessThan(before / 20);
  }
  expect(layer.bytes).toBe(before);
  layer.dispose();
});
