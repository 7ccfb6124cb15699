/** The log of rounds and the feed: what they keep, what they drop, and that the sums are those of the answers. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Feed } from "../../../src/server/telemetry/feed.ts";
import { listened } from "../../../src/server/telemetry/listened.ts";
import { RoundLog, type RoundRecord } from "../../../src/server/telemetry/round-log.ts";

const FACTS = { req: "00000000", mode: "dspark", i: 0, cap: 4, source: "drafter", ms: 1, row: 0, R: 1 } as const;
const ROUND = { ...FACTS, drafted: 4, accepted: 2, committed: 3 };

function add(log: RoundLog, part: Partial<RoundRecord> = {}): void {
  log.record({ ...ROUND, seq: log.next, t: log.now(), ...part });
}

describe("round log", () => {
  test("keeps the newest 512, oldest first, and counts them all", () => {
    const log = new RoundLog();
    for (let i = 0; i < 700; i++) add(log, { i });
    expect(log.last(1000)).toHaveLength(512);
    expect(log.last(3).map(({ i, seq }) => [i, seq])).toEqual([
      [697, 697],
      [698, 698],
      [699, 699],
    ]);
    expect(log.last(0)).toEqual([]);
    expect(log.stats()).toMatchObject({ rounds: 700, committed_tokens: 2100, mean_accept_len: 3 });
  });

  test("acceptance by position: offered when the round drafted so far, accepted when so far was accepted", () => {
    const log = new RoundLog();
    add(log, { drafted: 3, accepted: 3, committed: 4 });
    add(log, { drafted: 3, accepted: 1, committed: 2 });
    add(log, { drafted: 1, accepted: 0, committed: 1, source: "lookup" });
    add(log, { drafted: 0, accepted: 0, committed: 1, source: "plain" });
    expect(log.stats()).toEqual({
      rounds: 4,
      committed_tokens: 8,
      mean_accept_len: 2,
      draft_acceptance: 0.5714,
      lookup_rounds: 1,
      position_acceptance: [0.6667, 0.5, 0.5],
      position_offered: [3, 2, 2],
      accept_histogram: { "1": 2, "2": 1, "4": 1 },
    });
  });

  test("an empty log says nothing, in the same shape", () => {
    expect(new RoundLog().stats()).toEqual({
      ...{ rounds: 0, committed_tokens: 0, mean_accept_len: 0, draft_acceptance: null, lookup_rounds: 0 },
      ...{ position_acceptance: [], position_offered: [], accept_histogram: {} },
    });
  });

  test("any rounds: the histogram holds every round, its mean is the mean, positions never rise in number", () => {
    const round = fc.nat(8).chain((drafted) => fc.tuple(fc.constant(drafted), fc.nat(drafted)));
    fc.assert(
      fc.property(fc.array(round, { minLength: 1, maxLength: 600 }), (rounds) => {
        const log = new RoundLog();
        for (const [drafted, accepted] of rounds) add(log, { drafted, accepted, committed: accepted + 1 });
        const stats = log.stats();
        const entries = Object.entries(stats.accept_histogram);
        expect(entries.reduce((sum, [, count]) => sum + count, 0)).toBe(rounds.length);
        expect(entries.reduce((sum, [length, count]) => sum + Number(length) * count, 0)).toBe(stats.committed_tokens);
        expect(stats.position_offered).toEqual([...stats.position_offered].sort((a, b) => b - a));
        for (const share of stats.position_acceptance) expect(share).toBeWithin(0, 1.0001);
      }),
    );
  });
});

describe("feed", () => {
  const event = (n: number) => ({ name: "round", data: { ...ROUND, seq: n, t: 0 } }) as const;

  test("nobody listens: nothing is wanted; each listener gets everything in order", async () => {
    const feed = new Feed();
    expect(feed.wanted).toBe(false);
    using a = feed.subscribe();
    using b = feed.subscribe();
    expect(feed.wanted).toBe(true);
    feed.publish(event(1));
    feed.publish(event(2));
    expect(await a.take(1000)).toEqual([event(1), event(2)]);
    expect(await b.take(1000)).toEqual([event(1), event(2)]);
  });

  test("a listener who does not take loses the newest beyond 256 and holds up nobody", async () => {
    const feed = new Feed();
    using slow = feed.subscribe();
    for (let i = 0; i < 1000; i++) feed.publish(event(i));
    const kept = (await slow.take(1000)) ?? [];
    expect(kept).toHaveLength(256);
    expect(kept.at(-1)).toEqual(event(255));
    feed.publish(event(1000));
    expect(await slow.take(1000)).toEqual([event(1000)]);
  });

  test("silence is an empty answer in time; the end comes after what is queued; leaving unsubscribes", async () => {
    const feed = new Feed();
    const subscription = feed.subscribe();
    expect(await subscription.take(5)).toEqual([]);
    const waiting = subscription.take(10_000);
    feed.publish(event(7));
    expect(await waiting).toEqual([event(7)]);
    feed.publish(event(8));
    feed.end();
    expect(await subscription.take(1000)).toEqual([event(8)]);
    expect(await subscription.take(1000)).toBeNull();
    subscription[Symbol.dispose]();
    expect(feed.wanted).toBe(false);
  });
});

describe("a listened source", () => {
  async function* source(fails = false) {
    yield 1;
    yield 2;
    if (fails) throw new Error("broken");
  }
  function listener() {
    const heard: unknown[] = [];
    const on = {
      value: (value: number) => heard.push(value),
      error: () => heard.push("error"),
      end: () => heard.push("end"),
    };
    return { heard, on };
  }

  test("passes everything on, in either way, and hears each end once", async () => {
    const { heard, on } = listener();
    const seen: number[] = [];
    for await (const value of listened(source(), on)) seen.push(value);
    expect({ seen, heard }).toEqual({ seen: [1, 2], heard: [1, 2, "end"] });

    const failing = listener();
    const all = async () => {
      for await (const value of listened(source(true), failing.on)) seen.push(value);
    };
    await expect(all()).rejects.toThrow("broken");
    expect(failing.heard).toEqual([1, 2, "error", "end"]);

    const left = listener();
    for await (const value of listened(source(), left.on)) if (value === 1) break;
    expect(left.heard).toEqual([1, "end"]);

    const handed = listener();
    const pushes = Object.assign(source(), {
      each: (sink: (value: number) => void) => {
        sink(5);
        return Promise.resolve();
      },
    });
    const sunk: number[] = [];
    await listened(pushes, handed.on).each?.((value) => sunk.push(value));
    expect({ sunk, heard: handed.heard }).toEqual({ sunk: [5], heard: [5, "end"] });
    expect(listened(source(), handed.on).each).toBeUndefined();
  });
});
