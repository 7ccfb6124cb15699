/** Counts are made one at a time, remembered while their model is loaded, and bounded. */
import { describe, expect, test } from "bun:test";
import { messagesRequest } from "../../../src/server/anthropic/request.ts";
import { type PromptEncoder, TokenCounts } from "../../../src/server/anthropic/token-counts.ts";
import { ByteText } from "../byte-text.ts";
import { at } from "../harness.ts";
import { SCRIPTED_MODEL } from "../scripted-engine.ts";

describe("counting", () => {
  const { signal } = new AbortController();
  const asked = (content: string) =>
    messagesRequest({ messages: [{ role: "user", content }] }, 0, { keepBillingHeader: false }).generation;

  /** Encodes by hand, one piece of work at a time, and can change its model. */
  class Encoder implements PromptEncoder {
    text = new ByteText();
    encoded = 0;
    running = 0;
    most = 0;
    failure: Error | null = null;

    loaded() {
      return { model: SCRIPTED_MODEL, text: this.text };
    }

    async promptIds() {
      this.encoded += 1;
      this.running += 1;
      this.most = Math.max(this.most, this.running);
      await new Promise((resolve) => setImmediate(resolve));
      this.running -= 1;
      if (this.failure !== null) throw this.failure;
      return [Array.from({ length: this.encoded }, () => 0)];
    }
  }

  test("a burst of the same prompt is encoded once, different ones one after another", async () => {
    const encoder = new Encoder();
    const counts = new TokenCounts(encoder);
    const same = await Promise.all(Array.from({ length: 50 }, () => counts.count(asked("a"), signal)));
    expect([encoder.encoded, new Set(same).size]).toEqual([1, 1]);
    await Promise.all(Array.from({ length: 50 }, (_, i) => counts.count(asked(`b${i}`), signal)));
    expect([encoder.encoded, encoder.most]).toEqual([51, 1]);
    expect(await counts.count(asked("a"), signal)).toBe(1);
    expect(encoder.encoded).toBe(51);
  });

  test("another model counts anew", async () => {
    const encoder = new Encoder();
    const counts = new TokenCounts(encoder);
    await counts.count(asked("a"), signal);
    encoder.text = new ByteText();
    expect(await counts.count(asked("a"), signal)).toBe(2);
  });

  test("an error is the asker's alone and is not remembered; a lost client is not counted for", async () => {
    const encoder = new Encoder();
    const counts = new TokenCounts(encoder);
    encoder.failure = new Error("no");
    await expect(counts.count(asked("a"), signal)).rejects.toThrow("no");
    encoder.failure = null;
    expect(await counts.count(asked("a"), signal)).toBe(2);
    await expect(counts.count(asked("b"), AbortSignal.abort())).rejects.toThrow("closed");
    expect(encoder.encoded).toBe(2);
  });

  test("the least recently used is forgotten first, and the waiting are bounded", async () => {
    const encoder = new Encoder();
    const counts = new TokenCounts(encoder);
    const all = Array.from({ length: 600 }, (_, i) => counts.count(asked(`c${i}`), signal));
    const settled = await Promise.allSettled(all);
    const refused = settled.filter(({ status }) => status === "rejected");
    expect([settled.length - refused.length, at(refused[0], "reason", "status")]).toEqual([512, 429]);
    for (let i = 0; i < 513; i++) await counts.count(asked(`d${i}`), signal);
    const before = encoder.encoded;
    await counts.count(asked("c1"), signal);
    expect(encoder.encoded).toBe(before);
    await counts.count(asked("c0"), signal);
    expect(encoder.encoded).toBe(before + 1);
  });
});
