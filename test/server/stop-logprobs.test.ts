/** Stop strings and log-probabilities: where the text ends, what is counted, and which chunk lists which token. */
import { describe, expect, test } from "bun:test";
import { at, dataLines, harness, until } from "./harness.ts";
import { EOS, writes } from "./scripted-engine.ts";

const HI = [{ role: "user" as const, content: "hi" }];

describe("stop strings", () => {
  test("text and count end at the match, and the row is cancelled", async () => {
    await using h = harness(() => writes("one, two, three", { endless: true, stepMs: 1 }));
    const reply = await h.client.chat.completions.create({ model: "", messages: HI, stop: [", tw", "zzz"] });
    expect(reply.choices[0]?.message.content).toBe("one");
    expect(reply.choices[0]?.finish_reason).toBe("stop");
    expect(reply.usage?.completion_tokens).toBe("one, tw".length);
    await until(() => h.engine.cancelled.length === 1);
    expect(h.engine.active).toBe(0);
  });

  test("ids of one step after the match are neither shown nor counted", async () => {
    await using h = harness(() => writes("abcdefgh", { perStep: 8 }));
    const body = { messages: HI, stop: "c", return_token_ids: true, logprobs: true };
    const reply = await (await h.post("/v1/chat/completions", body)).json();
    expect(at(reply, "choices", 0, "message", "content")).toBe("ab");
    expect(at(reply, "usage", "completion_tokens")).toBe(3);
    expect(at(reply, "choices", 0, "token_ids")).toEqual([97, 98, 99]);
    // The stop string's own token has no visible text, so it is not listed.
    expect(at(reply, "choices", 0, "logprobs", "content", "length")).toBe(2);
  });

  test("the earliest place in the text wins, whichever string completes first", async () => {
    await using h = harness(() => writes("xabcd"));
    const reply = await (await h.post("/v1/completions", { prompt: "p", stop: ["bc", "abcd"] })).json();
    expect(at(reply, "choices", 0, "text")).toBe("x");
    expect(at(reply, "usage", "completion_tokens")).toBe(5);
  });

  test("a match that had to wait counts up to the token that completed it", async () => {
    await using h = harness(() => writes("xabyz"));
    const body = { prompt: "p", stop: ["b", "abz"], return_token_ids: true };
    const reply = await (await h.post("/v1/completions", body)).json();
    expect(at(reply, "choices", 0, "text")).toBe("xa");
    expect(at(reply, "usage", "completion_tokens")).toBe(3);
    expect(at(reply, "choices", 0, "token_ids")).toEqual([120, 97, 98]);
  });

  test("a stream never shows a part of a match, and releases what was none", async () => {
    await using h = harness(() => writes("a ENx END b"));
    const text = await (await h.post("/v1/completions", { prompt: "p", stop: "END", stream: true })).text();
    const pieces = dataLines(text).map((chunk) => at(chunk, "choices", 0, "text") ?? "");
    expect(pieces.join("")).toBe("a ENx ");
    expect(pieces).toEqual(["a", " ", "ENx", " ", "", ""]);
  });

  test("a withheld beginning comes out when the text ends", async () => {
    await using h = harness(() => writes("the EN"));
    const chat = await h.client.chat.completions.create({ model: "", messages: HI, stop: "END" });
    expect(chat.choices[0]?.message.content).toBe("the EN");
    expect(chat.usage?.completion_tokens).toBe(7);
  });
});

describe("logprobs", () => {
  test("chat: one entry per token with text, true bytes, alternatives as asked for", async () => {
    await using h = harness(() =>
      writes("hé", {
        top: [
          [104, -0.25],
          [195, Number.NEGATIVE_INFINITY],
        ],
      }),
    );
    const reply = await h.client.chat.completions.create({ model: "", messages: HI, logprobs: true, top_logprobs: 2 });
    const content = reply.choices[0]?.logprobs?.content;
    expect(content?.map((entry) => entry.bytes)).toEqual([[104], [195], [169]]);
    expect(content?.[0]?.token).toBe("h");
    expect(content?.[1]?.token).toBe("\ufffd");
    expect(content?.[0]?.top_logprobs).toEqual([
      { token: "h", logprob: -0.25, bytes: [104] },
      { token: "\ufffd", logprob: -9999, bytes: [195] },
    ]);
    expect(reply.choices[0]?.logprobs?.refusal).toBeNull();
    expect(h.engine.requests[0]?.topLogprobs).toBe(2);
  });

  test("chat stream: a chunk lists the tokens whose text it carries", async () => {
    await using h = harness(() => writes("aENb€"));
    const body = { messages: HI, stream: true, logprobs: true, stop: "END" };
    const chunks = dataLines(await (await h.post("/v1/chat/completions", body)).text()).slice(0, -1);
    const listed = chunks.map((chunk) => {
      const content = at(chunk, "choices", 0, "logprobs", "content");
      const tokens = Array.isArray(content) ? content.map((entry) => at(entry, "bytes", 0)) : null;
      return [at(chunk, "choices", 0, "delta", "content"), tokens];
    });
    expect(listed).toEqual([
      ["", null],
      ["a", [97]],
      ["ENb", [69, 78, 98]],
      ["€", [0xe2, 0x82, 0xac]],
      [undefined, null],
    ]);
  });

  test("completions: parallel lists with offsets in code points", async () => {
    await using h = harness(() => writes("😀ab", { perStep: 4, top: [[97, -1]] }));
    const reply = await (await h.post("/v1/completions", { prompt: "p", logprobs: 1 })).json();
    expect(at(reply, "choices", 0, "logprobs")).toEqual({
      tokens: ["\ufffd", "\ufffd", "\ufffd", "\ufffd", "a", "b"],
      token_logprobs: [-0.5, -0.5, -0.5, -0.5, -0.5, -0.5],
      top_logprobs: Array(6).fill({ a: -1 }),
      text_offset: [0, 0, 0, 0, 1, 2],
    });
  });
});

describe("completions", () => {
  test("one choice per prompt, in order, prompts counted once each", async () => {
    await using h = harness((request) => writes(`<${new TextDecoder().decode(Uint8Array.from(request.promptIds))}>`));
    const reply = await h.client.completions.create({ model: "", prompt: ["a", "bb"], n: 2, temperature: 1, seed: 3 });
    expect(reply.choices.map((choice) => [choice.index, choice.text])).toEqual([
      [0, "<a>"],
      [1, "<a>"],
      [2, "<bb>"],
      [3, "<bb>"],
    ]);
    expect(reply.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 4 + 4 + 5 + 5 });
    expect(h.engine.requests.map((request) => request.sampling.seed)).toEqual(["3", "4", "3", "4"]);
  });

  test("token ids are taken as they are, single or in lists", async () => {
    await using h = harness(() => writes("x"));
    await h.post("/v1/completions", { prompt: [72, EOS, 105] });
    const two = await (await h.post("/v1/completions", { prompt: [[1], [2, 3]], return_token_ids: true })).json();
    expect(h.engine.requests.map((request) => Array.from(request.promptIds))).toEqual([[72, EOS, 105], [1], [2, 3]]);
    expect(at(two, "choices", 1, "prompt_token_ids")).toEqual([2, 3]);
    expect(at(two, "choices", 1, "token_ids")).toEqual([120, EOS]);
  });

  test.each([
    ["prompt missing", {}, "prompt"],
    ["prompt a number", { prompt: 3 }, "prompt"],
    ["prompt list empty", { prompt: [] }, "prompt"],
    ["prompt empty", { prompt: "" }, "prompt"],
    ["ids beyond the vocabulary", { prompt: [1, 257] }, "prompt"],
    ["ids as numerals", { prompt: [["1", "2"]] }, "prompt"],
    ["ids negative", { prompt: [-1] }, "prompt"],
    ["mixed", { prompt: ["a", 1] }, "prompt"],
    ["129 choices", { prompt: Array(129).fill("a") }, "prompt"],
    ["too long", { prompt: "x".repeat(4096) }, "prompt"],
    ["echo", { prompt: "a", echo: true }, "echo"],
    ["suffix", { prompt: "a", suffix: "b" }, "suffix"],
    ["best_of", { prompt: "a", best_of: 2 }, "best_of"],
    ["logprobs", { prompt: "a", logprobs: 6 }, "logprobs"],
  ])("refused: %s", async (_name, body, param) => {
    await using h = harness();
    const reply = await h.post("/v1/completions", body);
    expect(reply.status).toBe(400);
    expect(at(await reply.json(), "error", "param")).toBe(param);
    expect(h.engine.requests).toEqual([]);
  });

  test("what asks for nothing is accepted", async () => {
    await using h = harness();
    const body = { prompt: "a", echo: false, suffix: "", best_of: 1, logprobs: 0 };
    expect((await h.post("/v1/completions", body)).status).toBe(200);
  });
});
