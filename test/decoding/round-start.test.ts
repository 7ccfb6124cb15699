/** A round tells when the device has its work: before it waits, and before anything is committed. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { kvStates } from "../../src/cache/state-factory.ts";
import { runRound } from "../../src/decoding/round.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { scheduleStep } from "../../src/decoding/step.ts";
import { type Tiny, tinyModel } from "../engine/tiny.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";

let tiny: Tiny;
beforeAll(() => {
  openTestMlx();
  tiny = tinyModel();
});
afterAll(() => tiny.dispose());

test("onStarted comes once, while the text is still what it was", () => {
  const { model, layout } = tiny;
  const prompt = [1, 2, 3];
  const limits = { maxNew: 20, eos: new Set<number>(), topLogprobs: null };
  const row = new Row(
    prompt,
    model.newStates(kvStates(0, layout), 40),
    new Sampler(GREEDY, model.vocabSize, prompt),
    limits,
  );
  scheduleStep(model, [{ row, kind: "prefill", count: prompt.length }], model.vocabSize).settle();
  for (const tokens of [Int32Array.of(4, 5), Int32Array.of(6)]) {
    const before = [row.committed, row.cached];
    const seen: number[][] = [];
    const onStarted = () => seen.push([row.committed, row.cached]);
    runRound(model, [{ row, draft: { source: "lookup", tokens } }], {
      drafter: null,
      vocab: model.vocabSize,
      onStarted,
    });
    expect(seen).toEqual([before]);
    expect(row.committed).toBeGreaterThan(before[0] as number);
  }
  row.dispose();
});
