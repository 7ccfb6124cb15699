/**
 * An append writes into its slab and does not copy it (batching.md B2): the allocator's peak at a depth of 16k, with and
 * without one, in the way that decoding/step.ts works (the scope is closed before evaluation).
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { GrowingKv } from "../../src/cache/growing-kv.ts";
import { kvStates } from "../../src/cache/state-factory.ts";
import { runRound } from "../../src/decoding/round.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { scheduleStep } from "../../src/decoding/step.ts";
import { asyncEvaluate, evaluate, free, keep, liveArrays, type MlxArray, scope } from "../../src/mlx/array.ts";
import { activeBytes, peakBytes, resetPeak } from "../../src/mlx/memory.ts";
import { synchronize } from "../../src/mlx/native.ts";
import { reshape, zeros } from "../../src/mlx/ops.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { type AttendingState, canAttend } from "../../src/nn/layer-state.ts";
import { tinyModel } from "../engine/tiny.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";

setDefaultTimeout(60_000);
const DEPTH = 16_000;
let model: TargetModel;
beforeAll(() => {
  openTestMlx();
  model = tinyModel("llama-f32", "stock").model;
});
afterAll(() => {
  model.dispose();
  expect(liveArrays()).toBe(0);
});

/** Appends `count` tokens with a single query: cheap at any depth. */
function append(state: AttendingState, count: number, heads = 2, width = 16): MlxArray {
  return scope(() => {
    const keys = zeros([1, heads, count, width], "float32");
    return keep(state.attend(zeros([1, heads, 1, width], "float32"), keys, keys, 1));
  });
}

/** Bytes that the allocator needed above what was held before and after. */
function extraBytes(body: () => void): number {
  synchronize();
  resetPeak();
  const before = activeBytes();
  body();
  synchronize();
  return peakBytes() - before;
}

function filled(state: AttendingState, heads?: number, width?: number): void {
  const out = append(state, DEPTH, heads, width);
  evaluate([out, ...state.arrays()]);
  free(out);
}

test("one cache, settled step by step: nothing is copied, unless somebody else refers to the slab", () => {
  const state = new GrowingKv(DEPTH + 100);
  filled(state, 4, 64);
  const slab = state.bytes / 2;
  const step = () => {
    const out = append(state, 1, 4, 64);
    asyncEvaluate([out]);
    evaluate([out]);
    free(out);
  };
  const settled = extraBytes(() => {
    for (let i = 0; i < 4; i++) step();
  });
  expect(settled).toBeLessThan(slab / 20);
  // The other side of the measure: a view that lives on makes the next append copy.
  const views = scope(() => state.arrays().map((x) => keep(reshape(x, [-1]))));
  evaluate(views);
  expect(extraBytes(step)).toBeGreaterThan(slab);
  for (const view of views) free(view);
  state.dispose();
});

/** A row of the tiny model whose caches hold DEPTH tokens. */
function deepRow(): Row {
  const prompt = new Array(DEPTH + 1).fill(7);
  const states = model.newStates(kvStates(0), DEPTH + 200);
  for (const state of states) if (canAttend(state)) filled(state);
  const limits = { maxNew: 100, eos: new Set<number>(), topLogprobs: null };
  const row = new Row(prompt, states, new Sampler(GREEDY, model.vocabSize, prompt), limits);
  row.cached = DEPTH;
  scheduleStep(model, [{ row, kind: "prefill", count: 1 }], model.vocabSize).settle();
  return row;
}

test("a whole step, settled before the next: nothing is copied", () => {
  const row = deepRow();
  const slab = (row.states[0]?.bytes ?? 0) / 2;
  const decode = () => scheduleStep(model, [{ row, kind: "decode", count: 1 }], model.vocabSize);
  const settled = extraBytes(() => {
    for (let i = 0; i < 4; i++) decode().settle();
  });
  expect(settled).toBeLessThan(slab / 2);
  row.dispose();
});

// One layer alone would copy: its slab is still read by the step in flight. MLX's CPU stream lets ten tasks wait at most,
// so that a layer's last read is done long before its next append is dispatched.
test("the next step scheduled before the last is settled: nothing is copied either", () => {
  const row = deepRow();
  const slab = (row.states[0]?.bytes ?? 0) / 2;
  const decode = () => scheduleStep(model, [{ row, kind: "decode", count: 1 }], model.vocabSize);
  const ahead = extraBytes(() => {
    let inFlight = decode();
    for (let i = 0; i < 8; i++) {
      const next = decode();
      inFlight.settle();
      inFlight = next;
    }
    inFlight.settle();
  });
  expect(ahead).toBeLessThan(slab / 2);
  row.dispose();
});

test("a round, whose forward is started before it is built: nothing is copied either", () => {
  const row = deepRow();
  const slab = (row.states[0]?.bytes ?? 0) / 2;
  const round = () =>
    runRound(model, [{ row, draft: { source: "lookup", tokens: Int32Array.of(1) } }], {
      drafter: null,
      vocab: model.vocabSize,
    });
  const rounds = extraBytes(() => {
    for (let i = 0; i < 8; i++) round();
  });
  expect(rounds).toBeLessThan(slab / 2);
  row.dispose();
});
