/** Streams: the exact frames, their order, what a client's helper makes of them, and what happens after an error. */
import { describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { at, dataLines, harness } from "./harness.ts";
import { writes } from "./scripted-engine.ts";

const HI = [{ role: "user" as const, content: "hi" }];

describe("frames", () => {
  test("chat: role, text, finish, usage, [DONE], each one data line", async () => {
    await using h = harness(() => writes("añ", { perStep: 2 }));
    const reply = await h.post("/v1/chat/completions", {
      messages: HI,
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(reply.status).toBe(200);
    expect(reply.headers.get("content-type")).toBe("text/event-stream");
    expect(reply.headers.get("cache-control")).toBe("no-cache");
    expect(reply.headers.get("x-accel-buffering")).toBe("no");
    const text = await reply.text();
    expect(text).toMatch(/^(data: [^\n]+\n\n)+$/);
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
    const chunks = dataLines(text).slice(0, -1);
    const shared = chunks.map((chunk) => [
      at(chunk, "id"),
      at(chunk, "created"),
      at(chunk, "model"),
      at(chunk, "object"),
    ]);
    expect(new Set(shared.map(String)).size).toBe(1);
    expect(shared[0]?.[3]).toBe("chat.completion.chunk");
    expect(chunks.map((chunk) => at(chunk, "choices"))).toEqual([
      [{ index: 0, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }],
      [{ index: 0, delta: { content: "a" }, logprobs: null, finish_reason: null }],
      [{ index: 0, delta: { content: "ñ" }, logprobs: null, finish_reason: null }],
      [{ index: 0, delta: {}, logprobs: null, finish_reason: "stop" }],
      [],
    ]);
    expect(chunks.map((chunk) => at(chunk, "usage") === null)).toEqual([true, true, true, true, false]);
    expect(at(chunks[4], "usage", "completion_tokens")).toBe(4);
    expect(at(chunks[4], "usage", "prompt_tokens_details", "cached_tokens")).toBe(3);
    expect(at(chunks[0], "x_mlx_dspark", "req")).toBe(h.engine.requests[0]?.id);
    expect(at(chunks[3], "x_mlx_dspark", "completion_tokens")).toBe(4);
  });

  test("without include_usage no chunk has usage or an empty choices list", async () => {
    await using h = harness();
    const text = await (await h.post("/v1/chat/completions", { messages: HI, stream: true })).text();
    const chunks = dataLines(text).slice(0, -1);
    expect(chunks.every((chunk) => at(chunk, "usage") === undefined)).toBe(true);
    expect(chunks.every((chunk) => at(chunk, "choices", "length") === 1)).toBe(true);
  });

  test("the joined deltas are the unstreamed answer, also through the SDK's helper", async () => {
    const story = "Ein Löwe 🦁 geht über die Straße — 日本語, да, 👨‍👩‍👧.";
    await using h = harness(() => writes(story, { perStep: 3 }));
    const whole = await h.client.chat.completions.create({ model: "m", messages: HI });
    const stream = h.client.chat.completions.stream({ model: "m", messages: HI });
    const deltas: string[] = [];
    stream.on("content", (delta) => deltas.push(delta));
    const final = await stream.finalChatCompletion();
    expect(whole.choices[0]?.message.content).toBe(story);
    expect(final.choices[0]?.message.content).toBe(story);
    expect(deltas.join("")).toBe(story);
    expect(deltas.every((delta) => delta.isWellFormed() && !delta.includes("\ufffd"))).toBe(true);
  });

  test("n choices stream side by side under their index", async () => {
    await using h = harness((request) => writes(`#${request.sampling.seed}`, { stepMs: 1 }));
    const body = { messages: HI, stream: true, n: 3, temperature: 1, seed: 5, stream_options: { include_usage: true } };
    const chunks = dataLines(await (await h.post("/v1/chat/completions", body)).text());
    const texts = ["", "", ""];
    const finishes: unknown[] = [];
    for (const chunk of chunks) {
      const index = at(chunk, "choices", 0, "index");
      if (typeof index !== "number") continue;
      texts[index] += String(at(chunk, "choices", 0, "delta", "content") ?? "");
      if (at(chunk, "choices", 0, "finish_reason") !== null) finishes.push(index);
    }
    expect(texts).toEqual(["#5", "#6", "#7"]);
    expect(finishes.sort()).toEqual([0, 1, 2]);
    expect(at(chunks.at(-2), "usage", "completion_tokens")).toBe(9);
  });

  test("completions: text pieces, an empty last one, usage, [DONE]", async () => {
    await using h = harness(() => writes("ab"));
    const body = { prompt: "x", stream: true, stream_options: { include_usage: true } };
    const text = await (await h.post("/v1/completions", body)).text();
    expect(text.startsWith(": stream\n\ndata: ")).toBe(true);
    const chunks = dataLines(text);
    expect(chunks.at(-1)).toBe("[DONE]");
    expect(chunks.slice(0, -1).map((chunk) => at(chunk, "choices"))).toEqual([
      [{ index: 0, text: "a", logprobs: null, finish_reason: null }],
      [{ index: 0, text: "b", logprobs: null, finish_reason: null }],
      [{ index: 0, text: "", logprobs: null, finish_reason: "stop" }],
      [],
    ]);
    expect(at(chunks[0], "object")).toBe("text_completion");
    expect(at(chunks[0], "id")).toMatch(/^cmpl-[0-9a-f]{32}$/);
  });
});

describe("headers and silence", () => {
  test("headers and the role chunk go out before the prompt is read", async () => {
    await using h = harness(() => writes("late", { stepMs: 400 }));
    const started = performance.now();
    const reply = await h.post("/v1/chat/completions", { messages: HI, stream: true });
    const reader = reply.body?.getReader();
    const first = await reader?.read();
    expect(performance.now() - started).toBeLessThan(300);
    expect(new TextDecoder().decode(first?.value)).toContain('"role":"assistant"');
    await reader?.cancel();
  });

  test("silence is filled by empty chunks on chat and by comments on completions", async () => {
    await using h = harness(() => writes("x", { stepMs: 100 }), { keepAliveMs: 25 });
    const chat = dataLines(await (await h.post("/v1/chat/completions", { messages: HI, stream: true })).text());
    const empty = chat.filter((chunk) => {
      const delta = at(chunk, "choices", 0, "delta");
      return JSON.stringify(delta) === "{}" && at(chunk, "choices", 0, "finish_reason") === null;
    });
    expect(empty.length).toBeGreaterThanOrEqual(2);
    const text = await (await h.post("/v1/completions", { prompt: "x", stream: true })).text();
    expect(text.match(/^: keepalive$/gm)?.length).toBeGreaterThanOrEqual(2);
  });

  test("the clock counts silence: a busy stream has no keep-alives", async () => {
    // The stream lasts for more than twice the limit; no step comes near it, also on a busy machine.
    await using h = harness(() => writes("0".repeat(60), { stepMs: 20 }), { keepAliveMs: 500 });
    const started = performance.now();
    const text = await (await h.post("/v1/completions", { prompt: "x", stream: true })).text();
    expect(performance.now() - started).toBeGreaterThan(1000);
    expect(text).not.toContain("keepalive");
  });
});

describe("errors after the headers", () => {
  const failure = { after: 2, error: { kind: "internal" as const, message: "array too large in /home/x/engine.ts" } };

  test("one error frame, no [DONE], nothing of the disk in it", async () => {
    await using h = harness(() => writes("abcdef", { failure }));
    const text = await (await h.post("/v1/chat/completions", { messages: HI, stream: true })).text();
    const chunks = dataLines(text);
    expect(text).not.toContain("[DONE]");
    expect(chunks.at(-1)).toEqual({
      error: { message: "array too large in engine.ts", type: "server_error", code: null },
    });
    expect(chunks.filter((chunk) => at(chunk, "choices", 0, "finish_reason") === "stop")).toEqual([]);
    expect(h.log.length).toBe(1);
  });

  test("the SDK raises it with the message", async () => {
    await using h = harness(() => writes("abcdef", { failure }));
    const read = async () => {
      const stream = await h.client.chat.completions.create({ model: "", messages: HI, stream: true });
      for await (const chunk of stream) expect(chunk.object).toBe("chat.completion.chunk");
    };
    const error = await read().catch((e: unknown) => e);
    if (!(error instanceof OpenAI.APIError)) throw new Error("expected an APIError");
    expect(error.message).toContain("array too large");
  });

  test("unstreamed, the same failure is a 500", async () => {
    await using h = harness(() => writes("abcdef", { failure }));
    const reply = await h.post("/v1/completions", { prompt: "x" });
    expect(reply.status).toBe(500);
    expect(at(await reply.json(), "error")).toEqual({
      message: "array too large in engine.ts",
      type: "server_error",
      param: null,
      code: null,
    });
  });
});

describe("where text came from", () => {
  const round = { source: "lookup" as const, drafted: 3, accepted: 2, cap: 4, ms: 1 };
  const spansIn = (chunks: readonly unknown[]) => chunks.flatMap((chunk) => at(chunk, "x_mlx_dspark", "spans") ?? []);

  test("chat: spans sum up to the deltas, thoughts and answer alike, and only when asked for", async () => {
    await using h = harness(() => writes("<think>ab\n</think>\n\nxé🦁y", { perStep: 3, round }));
    const body = { messages: HI, stream: true, stream_options: { include_speculation: true } };
    const chunks = dataLines(await (await h.post("/v1/chat/completions", body)).text());
    for (const chunk of chunks) {
      const delta = at(chunk, "choices", 0, "delta");
      const text = String(at(delta, "reasoning_content") ?? at(delta, "content") ?? "");
      const spans = spansIn([chunk]) as [number, string][];
      expect(spans.reduce((sum, [length]) => sum + length, 0)).toBe(text.length);
    }
    // Of three bytes the first two were drafted; a character has the source of its last byte.
    const story = "<think>ab\n</think>\n\nxé🦁y";
    const shown = chunks.flatMap((chunk) => {
      const delta = at(chunk, "choices", 0, "delta");
      const text = String(at(delta, "reasoning_content") ?? at(delta, "content") ?? "");
      let from = 0;
      return (spansIn([chunk]) as [number, string][]).map(([length, source]) => {
        from += length;
        return [text.slice(from - length, from), source];
      });
    });
    const expected = ["ab\n", "xé🦁y"].flatMap((part) =>
      Array.from(part, (character) => {
        const last = Buffer.byteLength(story.slice(0, story.indexOf(character) + character.length)) - 1;
        return [character, last % 3 < 2 ? "l" : "t"];
      }),
    );
    expect(shown.flatMap(([text, source]) => Array.from(String(text), (one) => [one, source]))).toEqual(expected);
    const without = await (await h.post("/v1/chat/completions", { ...body, stream_options: {} })).text();
    expect(without).not.toContain("spans");
  });

  test("completions: beside the request's id on the first chunk", async () => {
    await using h = harness(() => writes("abc", { perStep: 4, round: { ...round, source: "drafter" } }));
    const body = { prompt: "p", stream: true, stream_options: { include_speculation: true } };
    const [first] = dataLines(await (await h.post("/v1/completions", body)).text());
    expect(at(first, "x_mlx_dspark")).toEqual({
      req: h.engine.requests[0]?.id,
      spans: [
        [2, "d"],
        [1, "t"],
      ],
    });
  });
});
