/**
 * Random traffic through the scheduler (batching.md B13.1–2): whatever arrives, is cancelled or ends beside it, a request
 * gets what it would get alone, and the invariants hold after every turn.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { PackedKv } from "../../src/cache/packed-kv.ts";
import type { GenerateRequest, SamplingParams } from "../../src/engine/protocol.ts";
import type { ActiveRequest } from "../../src/engine/request.ts";
import type { Scheduler } from "../../src/engine/scheduler.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import type { LayerState } from "../../src/nn/layer-state.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";
import { harness, outcome, request, serial, type Tiny, tinyModel } from "./tiny.ts";

setDefaultTimeout(120_000);
const NAMES = ["llama-f32 stock", "llama-f32 fused", "llama-swa-f32 fused", "llama-q4g32-f32 fused"] as const;
const models = new Map<string, Tiny>();
beforeAll(() => {
  openTestMlx();
  for (const each of NAMES) {
    const [name, backend] = each.split(" ");
    const model = tinyModel(name, backend === "stock" ? "stock" : "fused");
    // The first forward makes the tables of the rotation.
    serial(model, request());
    models.set(each, model);
  }
});
afterAll(() => {
  for (const model of models.values()) model.dispose();
  expect(liveArrays()).toBe(0);
});

interface Visitor {
  readonly asked: GenerateRequest;
  /** Turn of arrival, and turns from there until it is cancelled; null: it stays. */
  readonly arrives: number;
  readonly leavesAfter: number | null;
}

const sampling: fc.Arbitrary<SamplingParams> = fc.oneof(
  { weight: 2, arbitrary: fc.constant(GREEDY) },
  {
    weight: 2,
    arbitrary: fc.record({
      temperature: fc.constantFrom(0, 0.7, 1.3),
      topP: fc.constantFrom(1, 0.9),
      topK: fc.constantFrom(0, 20),
      minP: fc.constantFrom(0, 0.05),
      presencePenalty: fc.constantFrom(0, 1.5),
      frequencyPenalty: fc.constantFrom(0, 0.5),
      repetitionPenalty: fc.constantFrom(1, 1.3),
      logitBias: fc.constantFrom<SamplingParams["logitBias"]>([], [[5, 3]]),
      seed: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }).map(String),
    }),
  },
);

const visitor: fc.Arbitrary<Visitor> = fc.record({
  arrives: fc.nat(30),
  leavesAfter: fc.oneof({ weight: 3, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: fc.nat(12) }),
  asked: fc
    .record({
      // 128 tokens are the first chunk: some prompts take one, some several; some fill the window.
      promptIds: fc.oneof(
        { weight: 5, arbitrary: fc.array(fc.nat(287), { minLength: 1, maxLength: 12 }) },
        { weight: 1, arbitrary: fc.array(fc.nat(287), { minLength: 120, maxLength: 290 }) },
      ),
      maxNewTokens: fc.integer({ min: 1, max: 14 }),
      eosIds: fc.uniqueArray(fc.nat(287), { maxLength: 60 }),
      sampling,
      topLogprobs: fc.constantFrom(null, null, 0, 3),
      priority: fc.constantFrom(0 as const, 1 as const),
    })
    .map(request),
});

const WINDOW = 296;
const traffic = fc.record({
  model: fc.constantFrom(...NAMES),
  maxBatch: fc.integer({ min: 1, max: 4 }),
  visitors: fc.array(visitor, { minLength: 1, maxLength: 9 }),
});

/** What a state writes to. */
function written(state: LayerState): readonly number[] {
  return state instanceof PackedKv ? [state.store] : state.arrays();
}

/** I1, I2, I3 and the row's place in the step in flight. */
function checkInvariants(scheduler: Scheduler, maxBatch: number): void {
  const { active } = scheduler as unknown as { active: readonly ActiveRequest[] };
  expect(active.length).toBeLessThanOrEqual(maxBatch);
  const seen = new Set<number>();
  for (const { row } of active) {
    if (row === null) throw new Error("an active request without a row");
    const known = row.tokens.length + (row.pending === null ? 0 : 1);
    if (row.inPrefill) expect(row.tokens.length).toBe(row.promptLength);
    else expect(row.cached).toBe(known - 1);
    for (const state of row.states) {
      expect(state.length).toBe(row.cached);
      for (const x of written(state)) {
        expect(seen.has(x)).toBe(false);
        seen.add(x);
      }
    }
  }
}

test("each request gets what it would get alone", () => {
  fc.assert(
    fc.property(traffic, ({ model: name, maxBatch, visitors }) => {
      const inner = models.get(name);
      if (inner === undefined) throw new Error(name);
      const before = liveArrays();
      const { scheduler, watch, posted } = harness(inner, { maxBatch, window: WINDOW });
      const due = new Set(visitors);
      const leaving = new Map<Visitor, number>();
      for (let turn = 0; due.size > 0 || scheduler.busy; turn++) {
        if (turn > 2000) throw new Error("the scheduler does not come to an end");
        for (const each of due) {
          if (each.arrives > turn) continue;
          scheduler.submit(each.asked);
          due.delete(each);
          if (each.leavesAfter !== null) leaving.set(each, turn + each.leavesAfter);
        }
        for (const [each, at] of leaving) if (at === turn) scheduler.cancel(each.asked.id);
        if (scheduler.busy) scheduler.turn();
        checkInvariants(scheduler, maxBatch);
      }
      for (const { asked, leavesAfter } of visitors) {
        const expected = serial(inner, asked, WINDOW);
        const actual = outcome(posted, asked.id);
        if (actual.end === "cancelled") {
          expect(leavesAfter).not.toBeNull();
          expect(actual.ids).toEqual(expected.ids.slice(0, actual.ids.length));
        } else expect(actual).toEqual(expected);
      }
      for (const { rows, total } of watch.batches) {
        expect(rows).toBeLessThanOrEqual(maxBatch);
        expect(total).toBeLessThanOrEqual(2048);
      }
      expect(scheduler.activeRows + scheduler.queuedRows).toBe(0);
      expect(scheduler.requestsDone).toBe(visitors.length);
      expect(liveArrays()).toBe(before);
    }),
    { numRuns: 50, includeErrorInReport: true },
  );
});
