/** Context rows that wait for each other: whatever waited, drafts are those of a context that was always up to date. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import type { DrafterSession } from "../../src/drafters/drafter.ts";
import { evaluate, float32Array, int32Array, liveArrays, scope, toInt32 } from "../../src/mlx/array.ts";
import { drafterRoot, readVectors } from "../support/drafter-golden.ts";
import { openTestMlx } from "../support/native.ts";
import { loadGoldenPair, type Pair } from "../support/pairs.ts";

setDefaultTimeout(120_000);
beforeAll(openTestMlx);

const pairs = new Map<string, Pair>();
afterAll(() => {
  for (const pair of pairs.values()) pair.dispose();
  expect(liveArrays()).toBe(0);
});

function pairOf(name: string): Pair {
  const pair = pairs.get(name) ?? loadGoldenPair(name, "fused");
  pairs.set(name, pair);
  return pair;
}

/** Taps of position `at`: golden rows in turn, so that every position matters. */
function tapsOf(name: string): (at: number) => Float32Array {
  const vector = readVectors(join(drafterRoot, name, "vectors.safetensors")).get("ctx_hidden");
  if (vector === undefined) throw new Error("no ctx_hidden");
  const width = vector.shape.at(-1) ?? 0;
  const rows = vector.values.length / width;
  return (at) => vector.values.slice((at % rows) * width, ((at % rows) + 1) * width);
}

type Action =
  | { readonly kind: "commit"; readonly count: number; readonly late: boolean }
  | { readonly kind: "trim"; readonly by: number }
  | { readonly kind: "draft"; readonly anchor: number };

const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("commit" as const),
      count: fc.oneof({ weight: 5, arbitrary: fc.constant(1) }, fc.integer({ min: 1, max: 30 })),
      late: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("trim" as const), by: fc.integer({ min: 0, max: 20 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("draft" as const), anchor: fc.integer({ min: 0, max: 511 }) }),
  },
);

test.each(["dspark_native", "dflash", "dspark_window"])("%s: drafts do not depend on what waited", (name) => {
  const { drafter } = pairOf(name);
  const tap = tapsOf(name);
  const commit = (session: DrafterSession, from: number, count: number, late: boolean) => {
    const rows = Array.from({ length: count }, (_, i) => [...tap(from + i)]);
    const width = rows[0]?.length ?? 0;
    scope(() => session.committed(float32Array(rows.flat(), [count, width]), late));
    evaluate(session.arrays());
  };
  const draft = (session: DrafterSession, anchor: number) =>
    scope(() => {
      const law = { kind: "greedy", vocab: 512, bias: null } as const;
      return [...toInt32(session.propose(int32Array([anchor]), drafter.maxDraft, law).ids)];
    });
  fc.assert(
    fc.property(fc.array(action, { minLength: 4, maxLength: 40 }), (actions) => {
      const waiting = drafter.newSession(2048);
      const eager = drafter.newSession(2048);
      const before = [waiting.bytes, liveArrays()];
      let length = 0;
      for (const step of actions) {
        if (step.kind === "commit") {
          commit(waiting, length, step.count, step.late);
          commit(eager, length, step.count, false);
          length += step.count;
        } else if (step.kind === "trim") {
          length = Math.max(0, length - step.by);
          waiting.trim(length);
          eager.trim(length);
        } else expect(draft(waiting, step.anchor)).toEqual(draft(eager, step.anchor));
        expect([waiting.length, eager.length]).toEqual([length, length]);
      }
      expect(draft(waiting, 7)).toEqual(draft(eager, 7));
      waiting.close();
      eager.close();
      expect(liveArrays()).toBeLessThanOrEqual(before[1] ?? 0);
    }),
    { numRuns: 60 },
  );
});

test("rows that wait are bounded, counted and freed", () => {
  const { drafter } = pairOf("dspark_native");
  const tap = tapsOf("dspark_native");
  const session = drafter.newSession(2048);
  const width = tap(0).length;
  let [most, waitingRows, before] = [0, 0, session.bytes];
  for (let at = 0; at < 500; at++) {
    scope(() => session.committed(float32Array(tap(at), [1, width]), true));
    evaluate(session.arrays());
    // One row more waits, or all were appended.
    waitingRows = session.bytes === before + 4 * width ? waitingRows + 1 : 0;
    most = Math.max(most, waitingRows);
    before = session.bytes;
  }
  expect(session.length).toBe(500);
  expect(most).toBeGreaterThan(8);
  expect(most).toBeLessThan(64);
  const waiting = session.bytes;
  scope(() => session.committed(float32Array(tap(0), [1, width]), true));
  expect(session.bytes).toBe(waiting + 4 * width);
  session.close();
});
