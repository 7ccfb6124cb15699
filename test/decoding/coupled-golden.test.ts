/** Sampled text of a golden target, token by token: seed, counter, transforms and draw are those of the vectors. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { scheduleStep } from "../../src/decoding/step.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import { goldenRoot } from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";

interface Run {
  readonly prompt_ids: readonly number[];
  readonly seed: number;
  readonly temperature: number;
  readonly top_p: number;
  readonly top_k: number;
  readonly tokens: readonly number[];
}

const root = goldenRoot("drafters");
const { coupled_sampling: runs } = JSON.parse(readFileSync(join(root, "loops/loops.json"), "utf8")) as {
  coupled_sampling: readonly Run[];
};
let model: TargetModel;
beforeAll(() => {
  openTestMlx();
  model = loadTarget(join(root, "target_det"), stockCompute("float32"), { dtype: "float32" }).model;
});
afterAll(() => {
  model.dispose();
  expect(liveArrays()).toBe(0);
});

function newRow({ prompt_ids: prompt, seed, temperature, top_p: topP, top_k: topK, tokens }: Run): Row {
  const sampler = new Sampler({ ...GREEDY, seed: String(seed), temperature, topP, topK }, model.vocabSize, prompt);
  const limits = { maxNew: tokens.length, eos: new Set<number>(), topLogprobs: null };
  return new Row(prompt, model.newStates(kvStates(0), 200), sampler, limits);
}

test("all golden runs, in one batch", () => {
  const rows = runs.map(newRow);
  expect(rows.length).toBeGreaterThanOrEqual(3);
  const prefill = rows.map((row) => ({ row, kind: "prefill" as const, count: row.promptLength }));
  scheduleStep(model, prefill, model.vocabSize).settle();
  while (rows.some((row) => !row.exhausted)) {
    const decode = rows.filter((row) => !row.exhausted).map((row) => ({ row, kind: "decode" as const, count: 1 }));
    scheduleStep(model, decode, model.vocabSize).settle();
  }
  for (const [i, row] of rows.entries()) {
    expect([...row.tokens.slice(row.promptLength, row.tokens.length)]).toEqual([...(runs[i]?.tokens ?? [])]);
    row.dispose();
  }
});
