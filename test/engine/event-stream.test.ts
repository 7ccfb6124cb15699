/** The queue between the engine and one consumer: order, end, errors, leaving, and nobody left waiting. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { EventStream } from "../../src/engine/event-stream.ts";

function stream(): { events: EventStream<number>; left: () => number } {
  let left = 0;
  const events = new EventStream<number>(() => {
    left++;
  });
  return { events, left: () => left };
}

async function drained(events: EventStream<number>): Promise<number[]> {
  const out: number[] = [];
  for await (const event of events) out.push(event);
  return out;
}

test("delivers in order, whatever came before the consumer", async () => {
  const { events, left } = stream();
  events.push(1);
  events.push(2);
  const all = drained(events);
  await Promise.resolve();
  events.push(3);
  await new Promise((resolve) => setTimeout(resolve, 1));
  events.push(4);
  events.end();
  events.push(5);
  events.end(new Error("too late"));
  expect(await all).toEqual([1, 2, 3, 4]);
  expect(left()).toBe(0);
  expect(await events.next()).toEqual({ value: undefined, done: true });
});

test("an error comes after what was pushed before it, once", async () => {
  const { events, left } = stream();
  events.push(1);
  events.end(new RangeError("broken"));
  expect((await events.next()).value).toBe(1);
  await expect(events.next()).rejects.toThrow("broken");
  expect(await events.next()).toEqual({ value: undefined, done: true });
  expect(left()).toBe(0);
});

describe("leaving", () => {
  test("by break: told once, nothing more is delivered", async () => {
    const { events, left } = stream();
    for (const value of [1, 2, 3]) events.push(value);
    for await (const event of events) if (event === 2) break;
    events.push(4);
    expect(await drained(events)).toEqual([]);
    expect(left()).toBe(1);
  });

  test("by an exception in the loop", async () => {
    const { events, left } = stream();
    events.push(1);
    const consume = async () => {
      for await (const event of events) throw new Error(`at ${event}`);
    };
    await expect(consume()).rejects.toThrow("at 1");
    expect(left()).toBe(1);
  });

  test("by throw, which passes the error on", async () => {
    const { events, left } = stream();
    await expect(events.throw(new Error("mine"))).rejects.toThrow("mine");
    expect(left()).toBe(1);
  });

  test("after the end is not told", async () => {
    const { events, left } = stream();
    events.push(1);
    events.end();
    await events.next();
    await events.return();
    expect(left()).toBe(0);
  });

  test("wakes a reader that waits", async () => {
    const { events, left } = stream();
    const waiting = events.next();
    await events.return();
    expect(await waiting).toEqual({ value: undefined, done: true });
    expect(left()).toBe(1);
  });
});

test("random pushes and pauses: everything arrives in order", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom("push", "pause")), fc.boolean(), async (steps, fails) => {
      const { events } = stream();
      let next = 0;
      const producer = (async () => {
        for (const step of steps) {
          if (step === "push") events.push(next++);
          else await new Promise((resolve) => setTimeout(resolve, 0));
        }
        events.end(fails ? new Error("end") : null);
      })();
      const out: number[] = [];
      const consume = async () => {
        for await (const event of events) out.push(event);
      };
      const failed = await consume().then(
        () => false,
        () => true,
      );
      await producer;
      expect(failed).toBe(fails);
      expect(out).toEqual(Array.from({ length: next }, (_, i) => i));
    }),
    { numRuns: 50 },
  );
});

describe("handing over", () => {
  test("what waits first, then each event within the push itself, to the end", async () => {
    const { events, left } = stream();
    events.push(1);
    const got: number[] = [];
    const over = events.each((event) => got.push(event));
    expect(got).toEqual([1]);
    events.push(2);
    expect(got).toEqual([1, 2]);
    events.end();
    await over;
    events.push(3);
    expect(got).toEqual([1, 2]);
    expect(left()).toBe(0);
  });

  test("an end before, with what was pushed before it; an error after it", async () => {
    const early = stream();
    early.events.push(1);
    early.events.end(new RangeError("broken"));
    const got: number[] = [];
    await expect(early.events.each((event) => got.push(event))).rejects.toThrow("broken");
    expect(got).toEqual([1]);
    const late = stream();
    const over = late.events.each(() => undefined);
    late.events.end(new RangeError("late"));
    await expect(over).rejects.toThrow("late");
  });

  test.each([true, false])(
    "a consumer that throws has left, and whoever pushes does not hear of it (queued: %p)",
    async (queued) => {
      const { events, left } = stream();
      let calls = 0;
      const fails = () => {
        calls++;
        throw new TypeError("mine");
      };
      if (queued) events.push(1);
      const over = events.each(fails);
      events.push(2);
      events.push(3);
      await expect(over).rejects.toThrow("mine");
      expect(calls).toBe(1);
      expect(left()).toBe(1);
    },
  );
});
