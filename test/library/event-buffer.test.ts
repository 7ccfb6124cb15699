/** The events that wait for a reader: in order, bounded, and no text lost. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { EventBuffer } from "../../src/library/event-buffer.ts";
import type { GenerationEvent } from "../../src/library/events.ts";

const ROUND: GenerationEvent = {
  ...{ type: "round", index: 0, source: "plain", drafted: 0, accepted: 0, committed: 1, cap: null, ms: 1 },
};

async function drain(buffer: EventBuffer): Promise<GenerationEvent[]> {
  const all: GenerationEvent[] = [];
  for (let event = await buffer.next(); event !== undefined; event = await buffer.next()) all.push(event);
  return all;
}

test("a reader who is there gets everything as it comes, and the end", async () => {
  const buffer = new EventBuffer();
  const reading = drain(buffer);
  buffer.push(ROUND);
  await Bun.sleep(1);
  buffer.push({ type: "text", text: "a", tokenIds: [1] });
  buffer.end();
  expect((await reading).map(({ type }) => type)).toEqual(["round", "text"]);
});

test("a failure comes behind what was told before it", async () => {
  const buffer = new EventBuffer();
  buffer.push(ROUND);
  buffer.end({ error: new Error("broken") });
  expect(await buffer.next()).toEqual(ROUND);
  const error = await buffer.next().catch((reason: unknown) => reason);
  expect(error).toEqual(new Error("broken"));
});

test("without a reader it stays small, and texts and ids are whole", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.boolean(), { minLength: 4000, maxLength: 9000 }), async (kinds) => {
      const buffer = new EventBuffer();
      let [text, ids] = ["", 0];
      for (const isText of kinds) {
        if (isText) {
          text += String(ids % 10);
          buffer.push({ type: "text", text: String(ids % 10), tokenIds: [ids++] });
        } else buffer.push(ROUND);
      }
      buffer.end();
      const events = await drain(buffer);
      expect(events.length).toBeLessThanOrEqual(4096);
      const texts = events.flatMap((event) => (event.type === "text" ? [event] : []));
      expect(texts.map((event) => event.text).join("")).toBe(text);
      expect(texts.flatMap(({ tokenIds }) => tokenIds)).toEqual(Array.from({ length: ids }, (_, i) => i));
    }),
    { numRuns: 20 },
  );
});
