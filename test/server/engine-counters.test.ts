import { expect, test } from "bun:test";
import { GrammarMeter } from "../../src/engine/grammar/metrics.ts";
import type { EngineStats } from "../../src/engine/protocol.ts";
import { EngineCounters } from "../../src/server/engine-counters.ts";
import { at, harness } from "./harness.ts";

function stats(liveArrays: number): EngineStats {
  return {
    liveArrays,
    activeRows: 0,
    queuedRows: 0,
    steps: 3,
    requestsDone: 2,
    mlxActiveBytes: 10,
    mlxPeakBytes: 20,
    mlxCacheBytes: 30,
    grammars: new GrammarMeter().metrics,
  };
}

/** An engine whose answers the test gives. */
function mutedEngine() {
  const answers: PromiseWithResolvers<EngineStats>[] = [];
  return {
    answers,
    stats: () => {
      const answer = Promise.withResolvers<EngineStats>();
      answers.push(answer);
      return answer.promise;
    },
  };
}

test("an engine that answers at once is read anew each time", async () => {
  let live = 1;
  const counters = new EngineCounters({ stats: () => Promise.resolve(stats(live++)) });
  expect(await counters.read()).toEqual(stats(1));
  expect(await counters.read()).toEqual(stats(2));
});

test("a busy engine is neither waited for nor asked twice; its late answer counts", async () => {
  const engine = mutedEngine();
  const counters = new EngineCounters(engine);
  expect(await counters.read()).toBeNull();
  expect(await counters.read()).toBeNull();
  expect(engine.answers).toHaveLength(1);
  engine.answers[0]?.resolve(stats(5));
  await Bun.sleep(0);
  expect(await counters.read()).toEqual(stats(5));
  expect(engine.answers).toHaveLength(2);
});

test("a failed engine has no counters", async () => {
  let fails = false;
  const counters = new EngineCounters({
    stats: () => (fails ? Promise.reject(new Error("the engine thread has ended")) : Promise.resolve(stats(1))),
  });
  await counters.read();
  fails = true;
  expect(await counters.read()).toBeNull();
});

test("health shows them", async () => {
  await using h = harness();
  const body: unknown = await (await fetch(`${h.url}/health`)).json();
  expect(at(body, "engine")).toEqual({
    live_arrays: 0,
    active_rows: 0,
    steps: 0,
    requests_done: 0,
    active_bytes: 0,
    cache_bytes: 0,
  });
});
