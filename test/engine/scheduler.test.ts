/** The scheduler case by case: refusals, order, cancels in every phase, failures of forwards and rows, abort, no leak. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { Sampler } from "../../src/decoding/sampler.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import type { StepBatch } from "../../src/nn/layer-state.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";
import { type Breakage, harness, outcome, request, serial, type Tiny, tinyModel } from "./tiny.ts";

setDefaultTimeout(60_000);
let inner: Tiny;
let before = 0;
beforeAll(() => {
  openTestMlx();
  inner = tinyModel();
  serial(inner, request());
});
beforeEach(() => {
  before = liveArrays();
});
afterEach(() => expect(liveArrays()).toBe(before));
afterAll(() => {
  inner.dispose();
  expect(liveArrays()).toBe(0);
});

const refused = (posted: ReturnType<typeof harness>["posted"], id: string) => {
  for (const message of posted) if (message.type === "failed" && message.id === id) return message.error;
  return null;
};

describe("refusals", () => {
  test.each([
    ["an empty prompt", { promptIds: [] }, "empty"],
    ["no tokens", { maxNewTokens: 0 }, "at least one token"],
    ["a prompt that fills the window", { promptIds: new Array(64).fill(1) }, "64 tokens > 63 maximum"],
    ["an id beyond the vocabulary", { promptIds: [1, 288] }, "token id 288"],
    ["a negative id", { promptIds: [1, -1] }, "token id -1"],
    ["half an id", { promptIds: [1.5] }, "token id 1.5"],
    ["an id that is no number", { promptIds: [Number.NaN] }, "token id NaN"],
  ])("%s", (_, part, text) => {
    const { scheduler, posted } = harness(inner, { window: 64 });
    const asked = request(part);
    scheduler.submit(asked);
    expect(refused(posted, asked.id)).toMatchObject({
      kind: "invalid_request",
      message: expect.stringContaining(text),
    });
    expect(scheduler.busy).toBe(false);
  });

  test("more than the queue holds", () => {
    const { scheduler, posted, run } = harness(inner, { maxBatch: 1, maxQueue: 2 });
    const asked = [1, 2, 3, 4].map(() => request());
    scheduler.submit(asked[0] ?? request());
    scheduler.turn();
    for (const each of asked.slice(1)) scheduler.submit(each);
    expect(refused(posted, asked[3]?.id ?? "")?.kind).toBe("queue_full");
    run();
    expect(asked.map((each) => outcome(posted, each.id).end)).toEqual([
      "length",
      "length",
      "length",
      "failed: queue_full",
    ]);
  });

  test("a second request under a living id, waiting or running, leaves the first alone", () => {
    const { scheduler, posted, run } = harness(inner, { maxBatch: 1 });
    const [running, waiting] = [request(), request()];
    scheduler.submit(running);
    scheduler.turn();
    scheduler.submit(waiting);
    scheduler.submit({ ...running });
    scheduler.submit({ ...waiting });
    expect(posted.filter((message) => message.type === "failed").length).toBe(2);
    posted.splice(0, posted.length, ...posted.filter((message) => message.type !== "failed"));
    run();
    expect(outcome(posted, waiting.id)).toEqual(serial(inner, waiting));
  });
});

describe("limits", () => {
  test("the window cuts the completion", () => {
    const { scheduler, posted, run } = harness(inner, { window: 20 });
    const asked = request({ promptIds: new Array(15).fill(7), maxNewTokens: 100 });
    scheduler.submit(asked);
    run();
    expect(outcome(posted, asked.id).ids.length).toBe(5);
    expect(outcome(posted, asked.id)).toEqual(serial(inner, asked, 20));
  });

  test("EOS ends the row at once, counts, and nothing follows it", () => {
    const whole = serial(inner, request({ maxNewTokens: 12 })).ids;
    for (const [at, id] of whole.entries()) {
      if (whole.indexOf(id) < at) continue;
      const { scheduler, posted, run } = harness(inner);
      const asked = request({ maxNewTokens: 12, eosIds: [id] });
      scheduler.submit(asked);
      run();
      expect(outcome(posted, asked.id)).toEqual({ ids: whole.slice(0, at + 1), end: "stop" });
    }
  });

  test("statistics of a request", () => {
    const { scheduler, posted, run } = harness(inner);
    const asked = request({ sampling: { ...GREEDY, temperature: 1, seed: "18446744073709551615" }, maxNewTokens: 5 });
    scheduler.submit(asked);
    run();
    const done = posted.find((message) => message.type === "done");
    expect(done?.stats).toMatchObject({
      mode: "baseline",
      seed: "18446744073709551615",
      promptTokens: 3,
      completionTokens: 5,
      targetForwards: 5,
    });
    expect(done?.stats.ttftSeconds).toBeGreaterThan(0);
    expect(done?.stats.decodeSeconds).toBeGreaterThan(0);
  });

  test("a seed is drawn and told when none is given, and gives the same tokens again", () => {
    const { scheduler, posted, run } = harness(inner);
    const asked = request({ sampling: { ...GREEDY, temperature: 1.5, seed: null } });
    scheduler.submit(asked);
    run();
    const done = posted.find((message) => message.type === "done");
    const again = serial(inner, { ...asked, sampling: { ...asked.sampling, seed: done?.stats.seed ?? "" } });
    expect(outcome(posted, asked.id)).toEqual(again);
  });
});

describe("order", () => {
  test("interactive requests go before background ones, each in order of arrival", () => {
    const { scheduler, posted, run } = harness(inner, { maxBatch: 1 });
    const asked = ([1, 0, 1, 0] as const).map((priority) => request({ priority, maxNewTokens: 1 }));
    for (const each of asked) scheduler.submit(each);
    run();
    const order = posted.flatMap((message) => (message.type === "done" ? [message.id] : []));
    expect(order).toEqual([1, 3, 0, 2].map((i) => asked[i]?.id ?? ""));
  });

  test("a chunk's progress is told before its token, and ends at the whole prompt", () => {
    const { scheduler, posted, run } = harness(inner);
    const asked = request({ promptIds: Array.from({ length: 300 }, (_, i) => i % 288), maxNewTokens: 1 });
    scheduler.submit(asked);
    run();
    const types = posted.map((message) => message.type);
    expect(types.indexOf("tokens")).toBeGreaterThan(types.lastIndexOf("prefill"));
    const progress = posted.flatMap((message) => (message.type === "prefill" ? [message.processed] : []));
    expect(progress.length).toBeGreaterThan(1);
    expect(progress).toEqual([...progress].sort((a, b) => a - b));
    expect(progress.at(-1)).toBe(300);
  });

  test("rows decode while a long prompt is read", () => {
    const { scheduler, posted, run } = harness(inner);
    const [short, long] = [request({ maxNewTokens: 40 }), request({ promptIds: new Array(1500).fill(9) })];
    scheduler.submit(short);
    scheduler.turn();
    scheduler.submit(long);
    run();
    const between = posted.slice(
      posted.findIndex((message) => message.type === "prefill" && message.id === long.id),
      posted.findLastIndex((message) => message.type === "prefill" && message.id === long.id),
    );
    expect(between.filter((message) => message.type === "tokens").length).toBeGreaterThan(0);
    expect(outcome(posted, short.id)).toEqual(serial(inner, short));
    expect(outcome(posted, long.id)).toEqual(serial(inner, long));
  });
});

describe("cancel", () => {
  test("while queued, in prefill and while decoding; again and of nobody is nothing", () => {
    const { scheduler, posted, run } = harness(inner, { maxBatch: 2 });
    const decoding = request({ maxNewTokens: 500 });
    const reading = request({ promptIds: new Array(1000).fill(3) });
    const queued = request();
    scheduler.submit(decoding);
    scheduler.turn();
    scheduler.turn();
    scheduler.submit(reading);
    scheduler.submit(queued);
    scheduler.turn();
    scheduler.turn();
    expect([scheduler.activeRows, scheduler.queuedRows]).toEqual([2, 1]);
    for (const each of [queued, reading, decoding, decoding]) scheduler.cancel(each.id);
    scheduler.cancel("nobody");
    run();
    const [a, b, c] = [decoding, reading, queued].map((each) => outcome(posted, each.id));
    expect([a?.end, b?.end, c?.end]).toEqual(["cancelled", "cancelled", "cancelled"]);
    expect(a?.ids).toEqual(serial(inner, { ...decoding, maxNewTokens: a?.ids.length ?? 0 }).ids);
    expect(a?.ids.length).toBeGreaterThan(0);
    expect(b?.ids).toEqual([]);
    expect(c?.ids).toEqual([]);
  });

  test("a cancelled row's place is free in the next turn", () => {
    const { scheduler, posted, run } = harness(inner, { maxBatch: 1 });
    const [first, second] = [request({ maxNewTokens: 1000 }), request()];
    scheduler.submit(first);
    scheduler.submit(second);
    scheduler.turn();
    scheduler.cancel(first.id);
    scheduler.turn();
    expect(scheduler.queuedRows).toBe(0);
    run();
    expect(outcome(posted, second.id)).toEqual(serial(inner, second));
  });
});

describe.each(["graph", "dispatch"] as const)("a forward that fails (%s)", (how: Breakage) => {
  const isPrefillOf = (length: number) => (batch: StepBatch) => batch.rows[0]?.count === length;

  test("in prefill fails that row only", () => {
    const { scheduler, watch, posted, run } = harness(inner);
    const [healthy, sick, waiting] = [
      request({ maxNewTokens: 20 }),
      request({ promptIds: [5, 6, 7, 8, 9] }),
      request(),
    ];
    watch.breaks = (batch) => (isPrefillOf(5)(batch) ? how : null);
    scheduler.submit(healthy);
    scheduler.turn();
    scheduler.turn();
    scheduler.submit(sick);
    scheduler.submit(waiting);
    run();
    expect(outcome(posted, sick.id)).toEqual({ ids: [], end: "failed: internal" });
    expect(outcome(posted, healthy.id)).toEqual(serial(inner, healthy));
    expect(outcome(posted, waiting.id)).toEqual(serial(inner, waiting));
  });

  test("in decode fails the rows of that step; who reads or waits goes on", () => {
    const { scheduler, watch, posted, run } = harness(inner, { maxBatch: 3 });
    const rows = [request({ maxNewTokens: 50 }), request({ maxNewTokens: 50, topLogprobs: 2 })];
    const reading = request({ promptIds: new Array(900).fill(4) });
    const waiting = request();
    for (const each of rows) scheduler.submit(each);
    for (let i = 0; i < 6; i++) scheduler.turn();
    scheduler.submit(reading);
    scheduler.submit(waiting);
    let broken = 0;
    watch.breaks = (batch) => (batch.rows.length === 2 && broken++ === 0 ? how : null);
    run();
    for (const each of rows) {
      const { ids, end } = outcome(posted, each.id);
      expect(end).toBe("failed: internal");
      expect(ids).toEqual(serial(inner, each).ids.slice(0, ids.length));
      expect(ids.length).toBeLessThan(50);
    }
    expect(outcome(posted, reading.id)).toEqual(serial(inner, reading));
    expect(outcome(posted, waiting.id)).toEqual(serial(inner, waiting));
  });

  test("twice in a row fails all rows; then a healthy one begins anew", () => {
    const { scheduler, watch, posted, run } = harness(inner, { maxBatch: 3 });
    const [a, b, c] = [5, 6, 900].map((length) => request({ promptIds: new Array(length).fill(2), maxNewTokens: 4 }));
    for (const each of [a, b, c]) if (each !== undefined) scheduler.submit(each);
    watch.breaks = (batch) => (batch.rows.some(({ offset, count }) => offset === 0 && count < 7) ? how : null);
    scheduler.turn();
    expect(scheduler.activeRows).toBe(2);
    scheduler.turn();
    expect(scheduler.activeRows).toBe(0);
    for (const each of [a, b, c]) expect(outcome(posted, each?.id ?? "").end).toBe("failed: internal");
    watch.breaks = () => null;
    const next = request();
    scheduler.submit(next);
    run();
    expect(outcome(posted, next.id)).toEqual(serial(inner, next));
  });

  test("on and off, for long: no handle is lost", () => {
    const { scheduler, watch, posted, run } = harness(inner, { maxBatch: 3 });
    let seen = 0;
    watch.breaks = () => (++seen % 7 === 0 ? how : null);
    const asked = Array.from({ length: 40 }, (_, i) =>
      request({ maxNewTokens: 5, topLogprobs: i % 3, sampling: { ...GREEDY, temperature: i % 2, presencePenalty: 1 } }),
    );
    for (const each of asked) scheduler.submit(each);
    run();
    const ends = asked.map((each) => outcome(posted, each.id).end);
    expect(ends).toContain("length");
    expect(ends).toContain("failed: internal");
  });
});

describe("failures one after the other", () => {
  test("a healthy step that was begun before the first failure does not make the second one a first", () => {
    const { scheduler, watch, posted, run } = harness(inner);
    const decoding = request({ maxNewTokens: 50 });
    const reading = [request(), request()];
    scheduler.submit(decoding);
    for (let i = 0; i < 4; i++) scheduler.turn();
    watch.breaks = () => "graph";
    // The step in flight is settled after the next one has failed.
    scheduler.turn();
    expect(outcome(posted, decoding.id).end).toBe("failed: internal");
    for (const each of reading) scheduler.submit(each);
    scheduler.turn();
    watch.breaks = () => null;
    run();
    for (const each of reading) expect(outcome(posted, each.id).end).toBe("failed: internal");
  });

  test("a chunk is not read for a row that the step in flight has taken along", () => {
    // Caches of the stock backend would come alive again, and stay.
    const stock = tinyModel("llama-f32", "stock");
    serial(stock, request());
    const alive = liveArrays();
    const { scheduler, watch, posted, run } = harness(stock, { maxBatch: 3 });
    const decoding = request({ maxNewTokens: 50 });
    const first = request({ promptIds: [1, 2, 3, 4, 5] });
    const second = request({ promptIds: new Array(900).fill(4) });
    scheduler.submit(decoding);
    for (let i = 0; i < 4; i++) scheduler.turn();
    scheduler.submit(first);
    scheduler.submit(second);
    // The first prompt fails, then the decode step, which is noticed when it is settled: before the second prompt's chunk.
    let broken = false;
    watch.breaks = ({ rows }) => {
      if (rows[0]?.count === 5) {
        broken = true;
        return "graph";
      }
      return broken && rows[0]?.count === 1 ? "device" : null;
    };
    while (scheduler.activeRows > 0) scheduler.turn();
    for (const each of [decoding, first, second]) expect(outcome(posted, each.id).end).toBe("failed: internal");
    watch.breaks = () => null;
    const next = request();
    scheduler.submit(next);
    run();
    expect(outcome(posted, next.id)).toEqual(serial(stock, next));
    expect(liveArrays()).toBe(alive);
    stock.dispose();
  });
});

describe("a row that fails alone", () => {
  test("in its sampler: removed, the others of the step undisturbed", () => {
    const { scheduler, posted, run } = harness(inner);
    const choose = Sampler.prototype.choose;
    Sampler.prototype.choose = function (this: Sampler, logits, index) {
      if (this.seed === 666n && index === 3) throw new Error("sick sampler");
      return choose.call(this, logits, index);
    };
    const sampled = (seed: string) => request({ sampling: { ...GREEDY, temperature: 1, seed }, maxNewTokens: 10 });
    const [sick, healthy, greedy] = [sampled("666"), sampled("7"), request({ topLogprobs: 1 })];
    try {
      for (const each of [sick, healthy, greedy]) scheduler.submit(each);
      run();
    } finally {
      Sampler.prototype.choose = choose;
    }
    expect(outcome(posted, sick.id)).toEqual({ ids: serial(inner, sick).ids.slice(0, 3), end: "failed: internal" });
    expect(outcome(posted, healthy.id)).toEqual(serial(inner, healthy));
    expect(outcome(posted, greedy.id)).toEqual(serial(inner, greedy));
  });

  test("before its first step: a seed that is no number", () => {
    const { scheduler, posted, run } = harness(inner);
    const [sick, healthy] = [request({ sampling: { ...GREEDY, seed: "seven" } }), request()];
    scheduler.submit(sick);
    scheduler.submit(healthy);
    run();
    expect(outcome(posted, sick.id).end).toBe("failed: internal");
    expect(outcome(posted, healthy.id)).toEqual(serial(inner, healthy));
  });

  test("more alternatives than the vocabulary has are as many as it has", () => {
    const { scheduler, posted, run } = harness(inner);
    const asked = request({ topLogprobs: 1000, maxNewTokens: 2 });
    scheduler.submit(asked);
    run();
    const tops = posted.flatMap((message) =>
      message.type === "tokens" ? message.batch.map((event) => event.logprobs?.[0]?.top.length) : [],
    );
    expect(tops).toEqual([288, 288]);
  });
});

describe("the end", () => {
  test("abort fails what runs and what waits, with a step in flight", () => {
    const { scheduler, posted } = harness(inner, { maxBatch: 2 });
    const asked = [1, 2, 3].map(() => request({ maxNewTokens: 100, topLogprobs: 1 }));
    for (const each of asked) scheduler.submit(each);
    for (let i = 0; i < 6; i++) scheduler.turn();
    scheduler.abort({ kind: "not_ready", message: "another model is being loaded" });
    for (const each of asked) expect(outcome(posted, each.id).end).toBe("failed: not_ready");
    expect(scheduler.busy).toBe(false);
  });

  test("refuseWaiting lets run what runs", () => {
    const { scheduler, posted, run } = harness(inner, { maxBatch: 1 });
    const [running, waiting] = [request(), request()];
    scheduler.submit(running);
    scheduler.turn();
    scheduler.submit(waiting);
    scheduler.refuseWaiting({ kind: "shutdown", message: "bye" });
    run();
    expect(outcome(posted, running.id)).toEqual(serial(inner, running));
    expect(outcome(posted, waiting.id).end).toBe("failed: shutdown");
  });

  test("handles stay flat over a thousand joins and leaves", () => {
    const { scheduler, posted, run } = harness(inner, { maxBatch: 4 });
    for (let i = 0; i < 1000; i++) {
      const asked = request({
        maxNewTokens: 1 + (i % 3),
        topLogprobs: i % 5 === 0 ? 2 : null,
        sampling: i % 4 === 0 ? { ...GREEDY, temperature: 1, presencePenalty: 1, repetitionPenalty: 1.1 } : GREEDY,
      });
      scheduler.submit(asked);
      scheduler.turn();
      if (i % 7 === 0) scheduler.cancel(asked.id);
      while (scheduler.queuedRows > 0) scheduler.turn();
      // A row: keys and values of 3 layers, counts of its sampler, a token and log-probabilities in flight.
      expect(liveArrays() - before).toBeLessThanOrEqual(4 * (3 * 2 + 2 + 4));
    }
    run();
    expect(scheduler.requestsDone).toBe(1000);
    expect(posted.filter((message) => message.type === "done").length).toBe(1000);
  });
});
