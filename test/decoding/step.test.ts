/** Steps over rows of a tiny model: log-probabilities, padding, giving up, and rows that leave while a step runs. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { kvStates } from "../../src/cache/state-factory.ts";
import { discardLogprob, readLogprob, scheduleLogprob } from "../../src/decoding/logprobs.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import type { SamplingParams, TokenLogprob } from "../../src/decoding/sampling-params.ts";
import { type PlannedRow, type SettledToken, scheduleStep } from "../../src/decoding/step.ts";
import { TokenList } from "../../src/decoding/token-list.ts";
import { float32Array, int32Array, liveArrays, scope, toFloat32, uint32Array } from "../../src/mlx/array.ts";
import { astype, slice } from "../../src/mlx/ops.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import { tinyModel } from "../engine/tiny.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";
import { logSoftmax } from "./sequential.ts";

let model: TargetModel;
let before = 0;
beforeAll(() => {
  openTestMlx();
  model = tinyModel("llama-f32", "stock").model;
  const row = newRow([1]);
  prefill(row);
  row.dispose();
  before = liveArrays();
});
afterEach(() => expect(liveArrays()).toBe(before));
afterAll(() => {
  model.dispose();
  expect(liveArrays()).toBe(0);
});

function newRow(prompt: readonly number[], part: Partial<SamplingParams> = {}, topLogprobs: number | null = null): Row {
  const sampler = new Sampler({ ...GREEDY, ...part }, model.vocabSize, prompt);
  const limits = { maxNew: 20, eos: new Set<number>(), topLogprobs };
  return new Row(prompt, model.newStates(kvStates(0), 200), sampler, limits);
}

const whole = (row: Row): PlannedRow => ({ row, kind: "prefill", count: row.promptLength });
const next = (row: Row): PlannedRow => ({ row, kind: "decode", count: 1 });
const step = (...plan: PlannedRow[]) => scheduleStep(model, plan, model.vocabSize);
const prefill = (row: Row): SettledToken[] => step(whole(row)).settle();

/** Raw logits after the row's first `count` tokens. */
function rawLogits(row: Row, count: number): Float32Array {
  const states = model.newStates(kvStates(0), 200);
  const out = scope(() => {
    const batch = new StepBatch([{ states, count, offset: 0 }]);
    const { hidden } = model.forward(int32Array(row.tokens.slice(0, count)), batch);
    return toFloat32(model.logits(slice(hidden, [count - 1, 0], [count, model.hiddenSize])));
  });
  for (const state of states) state.dispose();
  return out;
}

describe("log-probabilities", () => {
  function logprob(logits: readonly number[], id: number, top: number, half = false): TokenLogprob {
    const pending = scope(() => {
      const wide = float32Array(logits, [1, logits.length]);
      return scheduleLogprob(half ? astype(wide, "bfloat16") : wide, uint32Array([id]), top);
    });
    const read = readLogprob(pending, id);
    discardLogprob(pending);
    return read;
  }

  test("equal log-softmax of the logits; the best come first, equals by id", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: -8, max: 8 }), { minLength: 1, maxLength: 30 }),
        fc.nat(29),
        fc.nat(40),
        fc.boolean(),
        (logits, choice, top, half) => {
          const id = choice % logits.length;
          const exact = logSoftmax(Float32Array.from(logits));
          const read = logprob(logits, id, top, half);
          expect(read.id).toBe(id);
          expect(read.logprob).toBeCloseTo(exact[id] ?? Number.NaN, 5);
          expect(read.top.length).toBe(Math.min(top, logits.length));
          const best = [...exact].sort((a, b) => b - a);
          for (const [rank, [other, value]] of read.top.entries()) {
            expect(value).toBeCloseTo(exact[other] ?? Number.NaN, 5);
            expect(value).toBeCloseTo(best[rank] ?? Number.NaN, 5);
            const [before, above] = read.top[rank - 1] ?? [-1, Number.POSITIVE_INFINITY];
            expect(above > value || (above === value && before < other)).toBe(true);
          }
          expect(new Set(read.top.map(([other]) => other)).size).toBe(read.top.length);
        },
      ),
    );
  });

  test("are of the raw logits, whatever bias, penalty and temperature do", () => {
    const row = newRow([4, 8, 15], { temperature: 1.5, presencePenalty: 2, logitBias: [[7, 4]], seed: "3" }, 4);
    const reports = prefill(row);
    for (let i = 0; i < 5; i++) reports.push(...step(next(row)).settle());
    expect(reports.length).toBe(6);
    for (const [i, { id, logprob: report }] of reports.entries()) {
      const exact = logSoftmax(rawLogits(row, 3 + i));
      expect(report?.logprob).toBeCloseTo(exact[id] ?? Number.NaN, 4);
      expect(report?.top.map(([, value]) => value)).toEqual(
        [...exact]
          .sort((a, b) => b - a)
          .slice(0, 4)
          .map((value) => expect.closeTo(value, 4)),
      );
    }
    row.dispose();
  });
});

test("logits beyond the vocabulary are padding: never chosen, not in the log-probabilities", () => {
  const rows = [newRow([3, 1], { temperature: 2 }, 50), newRow([2], {}, 50)];
  const plan = rows.map(whole);
  const tokens = scheduleStep(model, plan, 40).settle();
  for (let i = 0; i < 6; i++) tokens.push(...scheduleStep(model, rows.map(next), 40).settle());
  for (const { id, logprob } of tokens) {
    expect(id).toBeLessThan(40);
    expect(logprob?.top.length).toBe(40);
    expect(logprob?.top.every(([other]) => other < 40)).toBe(true);
    expect(logprob?.top.reduce((sum, [, value]) => sum + Math.exp(value), 0)).toBeCloseTo(1, 4);
  }
  for (const row of rows) row.dispose();
});

describe("a step", () => {
  test("given up, once or twice, holds nothing; after settling neither", () => {
    const row = newRow([1, 2, 3], {}, 2);
    const abandoned = step(whole(row));
    abandoned.discard();
    abandoned.discard();
    expect(row.pending).toBeNull();
    expect(row.committed).toBe(0);
    const other = newRow([1, 2, 3], {}, 2);
    const settled = step(whole(other));
    expect(settled.settle().length).toBe(1);
    settled.discard();
    expect(settled.settle()).toEqual([]);
    expect(other.committed).toBe(1);
    row.dispose();
    other.dispose();
  });

  test("commits nothing for a row that has left while it ran", () => {
    const [stays, leaves] = [newRow([5, 6]), newRow([7, 8], { temperature: 1, presencePenalty: 1 }, 3)];
    step(whole(stays), whole(leaves)).settle();
    const running = step(next(stays), next(leaves));
    leaves.dispose();
    leaves.dispose();
    expect(running.settle().map(({ row }) => row)).toEqual([stays]);
    stays.dispose();
  });

  test("ahead of the last one gives the same tokens, row by row", () => {
    const serially = [newRow([9, 9, 1]), newRow([2, 4], { temperature: 1, seed: "8", frequencyPenalty: 1 })];
    const ahead = [newRow([9, 9, 1]), newRow([2, 4], { temperature: 1, seed: "8", frequencyPenalty: 1 })];
    step(...serially.map(whole)).settle();
    for (let i = 0; i < 10; i++) for (const row of serially) step(next(row)).settle();
    let inFlight = step(...ahead.map(whole));
    for (let i = 0; i < 10; i++) {
      const following = step(...ahead.map(next));
      inFlight.settle();
      inFlight = following;
    }
    inFlight.settle();
    for (const [i, row] of serially.entries()) {
      expect([...(ahead[i]?.tokens.slice(0, 100) ?? [])]).toEqual([...row.tokens.slice(0, 100)]);
    }
    for (const row of [...serially, ...ahead]) row.dispose();
  });

  test("inner chunks of a prompt choose nothing, and end like the whole prompt", () => {
    const prompt = Array.from({ length: 90 }, (_, i) => (i * 7) % 288);
    const [chunked, single] = [newRow(prompt), newRow(prompt)];
    for (const count of [1, 31, 57]) {
      expect(step({ row: chunked, kind: "prefill", count }).settle()).toEqual([]);
      expect(chunked.pending).toBeNull();
    }
    expect(chunked.inPrefill).toBe(true);
    const [last] = step({ row: chunked, kind: "prefill", count: 1 }).settle();
    expect(last?.id).toBe(prefill(single)[0]?.id ?? -1);
    expect(chunked.inPrefill).toBe(false);
    for (const state of chunked.states) expect(state.length).toBe(90);
    chunked.dispose();
    single.dispose();
  });
});

test("a token list grows and gives views of what it holds", () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(), { maxLength: 20 }),
      fc.nat(5),
      fc.array(fc.nat(), { maxLength: 80 }),
      (initial, room, more) => {
        const list = new TokenList(initial, room);
        const all = [...initial];
        for (const id of more) {
          list.push(id);
          all.push(id);
          expect(list.length).toBe(all.length);
        }
        const [start, end] = [all.length >> 2, all.length];
        expect([...list.slice(start, end)]).toEqual(all.slice(start, end));
        expect([...list.slice(start, end + 50)]).toEqual(all.slice(start));
      },
    ),
  );
});
