/** What calibration times: each piece of work leaves the pair as it was, on either backend. */
import { afterEach, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { fillState } from "../../src/cache/fill-state.ts";
import { kvStates } from "../../src/cache/state-factory.ts";
import { calibrate, calibrationPlan } from "../../src/decoding/calibrate.ts";
import { costsOf } from "../../src/decoding/calibration-store.ts";
import { PairWork } from "../../src/decoding/calibration-work.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import type { StateSpec } from "../../src/nn/layer-state.ts";
import { openTestMlx } from "../support/native.ts";
import { loadGoldenPair } from "../support/pairs.ts";

setDefaultTimeout(120_000);
beforeAll(openTestMlx);
afterEach(() => expect([liveArrays(), liveCpuObjects()]).toEqual([0, 0]));

describe.each(["fused", "stock"] as const)("%s", (backend) => {
  const calibrated = () => {
    const pair = loadGoldenPair("dspark_native", backend);
    const { model, layout, drafter } = pair;
    return { pair, work: new PairWork({ model, layout, kvBits: 0, vocab: model.vocabSize, drafter }) };
  };

  test("every piece can be repeated in any order, at two depths, and holds no more handles after than before", () => {
    const { pair, work } = calibrated();
    const pieces = [
      () => work.measureVerify(3),
      () => work.measureDraft(2),
      () => work.measureRound(2),
      () => work.measurePlain(5),
      () => work.measureDepth(1, 600),
      () => work.measureDepth(4, 600),
    ];
    for (const piece of pieces) piece();
    const before = [liveArrays(), liveCpuObjects()];
    for (const piece of [...pieces].reverse()) piece();
    expect([liveArrays(), liveCpuObjects()]).toEqual(before);
    work.measureDepth(2, 700);
    expect([liveArrays(), liveCpuObjects()]).toEqual(before);
    work.dispose();
    pair.dispose();
  });

  test("a whole calibration prices plain steps, rounds and depth", async () => {
    const { pair, work } = calibrated();
    const plan = calibrationPlan({ maxCap: 2, maxBatch: 1, wholeBlock: false, depths: [1024] });
    const { entry, problems } = await calibrate(work, plan);
    expect(problems).toEqual([]);
    if (entry === null) throw new Error("no entry");
    expect(entry.plain).toBeGreaterThan(0);
    expect(Object.keys(costsOf(entry).depthSlope ?? {})).toEqual(["1", "2"]);
    const curves = new CostCurves(costsOf(entry));
    for (const depth of [0, 512, 100_000]) expect(curves.roundMs(2, depth)).toBeGreaterThan(0);
    work.dispose();
    pair.dispose();
  });
});

test.each([0, 4, 8] as const)(
  "a filled state holds as many tokens as it should, %i bits, windows among them",
  (bits) => {
    for (const layout of ["packed", "arrays"] as const) {
      for (const window of [null, 100]) {
        const spec: StateSpec = { kvHeads: 2, headDim: 32, window };
        const state = kvStates(bits, layout).newState(spec, 2000);
        fillState(state, spec, 1300);
        expect(state.length).toBe(1300);
        state.trim(5);
        expect(state.length).toBe(1295);
        state.dispose();
      }
    }
  },
);
