/**
 * The CPU backend's caches under random appends, trims and forks: a forward over them gives bit for bit what fresh caches
 * give that only saw the surviving tokens (models-dense.md §5.4), and forks do not see each other.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import { PackedKv } from "../../src/cache/packed-kv.ts";
import { kvStates } from "../../src/cache/state-factory.ts";
import { int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { goldenRoot } from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";

setDefaultTimeout(60_000);
beforeAll(openTestMlx);
afterAll(() => expect(liveArrays()).toBe(0));

const kinds = [
  ["full attention", "llama-f32", 0],
  ["windows of 8 beside full attention", "llama-swa-f32", 0],
  ["8 bits", "llama-q4g32-f32", 8],
  ["4 bits", "llama-q4g32-f32", 4],
] as const;

/** A sequence: its tokens, and the caches that hold them. */
interface Held {
  readonly tokens: number[];
  readonly states: PackedKv[];
}

const steps = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ append: fc.integer({ min: 1, max: 9 }), to: fc.nat(9) }) },
    { weight: 1, arbitrary: fc.record({ append: fc.integer({ min: 60, max: 150 }), to: fc.nat(9) }) },
    { weight: 3, arbitrary: fc.record({ trim: fc.integer({ min: 1, max: 12 }), of: fc.nat(9) }) },
    { weight: 1, arbitrary: fc.record({ trim: fc.integer({ min: 1, max: 200 }), of: fc.nat(9) }) },
    { weight: 1, arbitrary: fc.record({ fork: fc.nat(9) }) },
  ),
  { minLength: 3, maxLength: 14 },
);

describe.each(kinds)("%s", (_, name, kvBits) => {
  let model: TargetModel;
  let owned = 0;
  beforeAll(() => {
    const { compute, dtype } = chooseCompute({ MLX_DSPARK_CPU: "fused" });
    model = loadTarget(join(goldenRoot("dense"), name), compute, { dtype }).model;
    owned = liveArrays();
  });
  afterAll(() => model.dispose());

  function newHeld(): Held {
    const states = model.newStates(kvStates(kvBits, "packed"), 2048).map((state) => {
      if (state instanceof PackedKv) return state;
      throw new Error("not a packed cache");
    });
    return { tokens: [], states };
  }

  /** Logits of the last of `ids`, [V]. */
  function feed({ tokens, states }: Held, ids: readonly number[]): Float32Array {
    const logits = scope(() => {
      const batch = new StepBatch([{ states, offset: tokens.length, count: ids.length }]);
      const { hidden } = model.forward(int32Array(ids), batch);
      return toFloat32(model.logits(hidden)).slice(-model.vocabSize);
    });
    tokens.push(...ids);
    return logits;
  }

  function trimmed({ states }: Held, count: number): boolean {
    try {
      for (const state of states) state.trim(count);
      return true;
    } catch (error) {
      expect(error).toBeInstanceOf(RangeError);
      return false;
    }
  }

  function dispose({ states }: Held): void {
    for (const state of states) state.dispose();
  }

  test("a forward sees the surviving tokens and no others", () => {
    fc.assert(
      fc.property(steps, (sequence) => {
        const all = [newHeld()];
        const at = (n: number) => all[n % all.length] as Held;
        const undoable = new Map<Held, number>();
        let serial = 0;
        for (const step of sequence) {
          if ("append" in step) {
            const held = at(step.to);
            const ids = Array.from({ length: step.append }, () => (serial++ * 37) % 288);
            const fresh = newHeld();
            if (held.tokens.length > 0) feed(fresh, held.tokens);
            expect(feed(held, ids)).toEqual(feed(fresh, ids));
            dispose(fresh);
            undoable.set(held, ids.length);
          } else if ("trim" in step) {
            const held = at(step.of);
            const count = Math.min(step.trim, held.tokens.length);
            if (!trimmed(held, count)) {
              // Only a window may refuse, and never to undo what the last append brought. The sequence is lost then.
              expect(held.states.some(({ window }) => window !== null)).toBe(true);
              expect(count).toBeGreaterThan(undoable.get(held) ?? 0);
              break;
            }
            held.tokens.length -= count;
            undoable.set(held, Math.max(0, (undoable.get(held) ?? 0) - count));
          } else {
            const held = at(step.fork);
            all.push({ tokens: [...held.tokens], states: held.states.map((state) => state.fork()) });
          }
          for (const { tokens, states } of all) for (const state of states) expect(state.length).toBe(tokens.length);
        }
        for (const held of all) dispose(held);
        expect(liveArrays()).toBe(owned);
      }),
      { numRuns: 12, includeErrorInReport: true },
    );
  });

  test("disposing twice is disposing once", () => {
    const held = newHeld();
    feed(held, [1, 2, 3]);
    expect(held.states[0]?.bytes).toBeGreaterThan(0);
    dispose(held);
    dispose(held);
    expect(held.states[0]?.bytes).toBe(0);
    expect(liveArrays()).toBe(owned);
  });
});
