/** Tools, thoughts and calls on chat completions: what a body asks for, and what an answer with them looks like. */
import { describe, expect, test } from "bun:test";
import { RequestError } from "../../src/server/errors.ts";
import { answerContext } from "../../src/server/openai/answer.ts";
import { ChatChunks, chatAnswer } from "../../src/server/openai/chat-answer.ts";
import { type ChatBody, chatRequest } from "../../src/server/openai/chat-request.ts";
import { ByteText } from "./byte-text.ts";
import { at, harness } from "./harness.ts";
import { eventsOf, jobOf, resultsOf, type Said } from "./wire.ts";

const HI = [{ role: "user" as const, content: "hi" }];
const PARAMETERS = { type: "object", properties: { city: { type: "string" } } };
const WEATHER = {
  type: "function" as const,
  function: { name: "weather", description: "Of a city", parameters: PARAMETERS },
};
const CLOCK = { type: "function" as const, function: { name: "clock", strict: true } };

function policyOf(fields: Partial<ChatBody>) {
  return chatRequest({ messages: HI, tools: [WEATHER, CLOCK], ...fields }, 0).generation.toolPolicy;
}

describe("tools", () => {
  test("are rendered and may be called", () => {
    const { generation } = chatRequest({ messages: HI, tools: [WEATHER, CLOCK] }, 0);
    expect(generation.prompt).toMatchObject({
      kind: "chat",
      conversation: {
        tools: [{ name: "weather", description: "Of a city", parameters: PARAMETERS }, { name: "clock" }],
      },
    });
    expect(generation.toolPolicy).toEqual({
      tools: [
        { name: "weather", description: "Of a city", parameters: PARAMETERS, strict: false },
        { name: "clock", strict: true },
      ],
      choice: { kind: "auto" },
      parallel: true,
    });
  });

  test("none: not rendered, not read", () => {
    const { generation } = chatRequest({ messages: HI, tools: [WEATHER], tool_choice: "none" }, 0);
    expect(at(generation.prompt, "conversation", "tools")).toBeUndefined();
    expect(generation.toolPolicy.tools).toEqual([]);
  });

  test("required, named, allowed, one at a time", () => {
    const names = (fields: Partial<ChatBody>) => {
      const { tools, choice, parallel } = policyOf(fields);
      return [tools.map((tool) => tool.name), choice, parallel];
    };
    const clock = { type: "function" as const, function: { name: "clock" } };
    const allowed = (mode: "auto" | "required") => ({
      type: "allowed_tools" as const,
      allowed_tools: { mode, tools: [clock] },
    });
    expect(names({ tool_choice: "required" })).toEqual([["weather", "clock"], { kind: "required" }, true]);
    expect(names({ tool_choice: clock })).toEqual([["clock"], { kind: "named", name: "clock" }, true]);
    expect(names({ tool_choice: { type: "function", name: "clock" } })[0]).toEqual(["clock"]);
    expect(names({ tool_choice: allowed("auto") })).toEqual([["clock"], { kind: "auto" }, true]);
    expect(names({ tool_choice: allowed("required") })).toEqual([["clock"], { kind: "required" }, true]);
    expect(names({ parallel_tool_calls: false })[2]).toBe(false);
  });

  test("all tools stay in the prompt whichever may be called", () => {
    const { generation } = chatRequest(
      { messages: HI, tools: [WEATHER, CLOCK], tool_choice: { type: "function", function: { name: "clock" } } },
      0,
    );
    expect(at(generation.prompt, "conversation", "tools", "length")).toBe(2);
  });

  const deep = JSON.parse(`${'{"a":'.repeat(100)}1${"}".repeat(100)}`);
  const many = Array.from({ length: 129 }, (_, i) => ({ type: "function", function: { name: `f${i}` } }));
  test.each([
    ["kind", { tools: [{ type: "custom", function: { name: "f" } }] }, "tools[0].type", /'function'/],
    ["no name", { tools: [{ type: "function", function: {} }] }, "tools[0].function.name", /required/],
    ["not a list", { tools: {} }, "tools", /a list/],
    ["required without tools", { tool_choice: "required" }, "tool_choice", /needs 'tools'/],
    ["unknown word", { tools: [WEATHER], tool_choice: "maybe" }, "tool_choice", /'none', 'auto'.*got 'maybe'/],
    ["unknown name", { tools: [WEATHER], tool_choice: { type: "function", name: "x" } }, "tool_choice", /'x'/],
    [
      "nothing allowed",
      { tools: [WEATHER], tool_choice: { type: "allowed_tools", mode: "required", tools: [] } },
      "tool_choice",
      /allows no function/,
    ],
    ["deep schema", { tools: [{ function: { name: "f", parameters: deep } }] }, "tools", /nested deeper/],
    ["too many for a grammar", { tools: many, tool_choice: "required" }, "tools", /too large: tools 129 > 128/],
    ["parallel", { tools: [WEATHER], parallel_tool_calls: "no" }, "parallel_tool_calls", /true or false/],
  ])("refused: %s", async (_name, body, param, message) => {
    await using h = harness();
    const reply = await h.post("/v1/chat/completions", { messages: HI, ...body });
    const json: unknown = await reply.json();
    expect([reply.status, at(json, "error", "param")]).toEqual([400, param]);
    expect(at(json, "error", "message")).toMatch(message);
    expect(h.engine.requests).toEqual([]);
  });

  test("many tools are fine where no grammar holds them, and so is auto without any", async () => {
    await using h = harness();
    expect((await h.post("/v1/chat/completions", { messages: HI, tools: many })).status).toBe(200);
    expect((await h.post("/v1/chat/completions", { messages: HI, tool_choice: "auto" })).status).toBe(200);
  });
});

describe("thinking", () => {
  const wish = (fields: Partial<ChatBody>) => {
    const { generation } = chatRequest({ messages: HI, ...fields }, 0);
    const { thinking, effort, split } = generation.reasoning;
    return [thinking, effort, split, at(generation.prompt, "conversation", "kwargs")];
  };

  test("fields of the body win over the template's, and the rest goes to the template", () => {
    expect(wish({})).toEqual([undefined, undefined, true, {}]);
    expect(wish({ chat_template_kwargs: { a: 1, enable_thinking: true }, enable_thinking: false })).toEqual([
      false,
      undefined,
      true,
      { a: 1 },
    ]);
    expect(wish({ chat_template_kwargs: { enable_thinking: true }, reasoning_effort: "none" })[0]).toBe(false);
    expect(wish({ chat_template_kwargs: { reasoning_effort: "minimal" } })).toEqual([undefined, "low", true, {}]);
    expect(wish({ chat_template_kwargs: { reasoning_effort: "none" } })[0]).toBe(false);
    expect(wish({ chat_template_kwargs: { reasoning_effort: "none" }, reasoning_effort: "high" })).toEqual([
      undefined,
      "high",
      true,
      {},
    ]);
  });

  test("names of the scale", () => {
    const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"].map((reasoning_effort) =>
      wish({ reasoning_effort }).slice(0, 2),
    );
    expect(efforts).toEqual([
      [false, undefined],
      [undefined, "low"],
      [undefined, "low"],
      [undefined, "medium"],
      [undefined, "high"],
      [undefined, "xhigh"],
      [undefined, "xhigh"],
    ]);
    expect(wish({ reasoning_effort: "max", enable_thinking: true }).slice(0, 2)).toEqual([true, "xhigh"]);
  });

  test("a word of the template's own reaches it", () => {
    expect(wish({ chat_template_kwargs: { reasoning_effort: "brutal" } })[3]).toEqual({ reasoning_effort: "brutal" });
    expect(() => wish({ reasoning_effort: "brutal" })).toThrow(RequestError);
  });
});

describe("answers", () => {
  const delivery = { model: "m", stream: true, includeUsage: true, logprobs: false, returnTokenIds: false };
  const said: readonly Said[] = [
    { thinks: "Hm, " },
    { thinks: "Oslo. " },
    { says: "Let me" },
    { says: " look." },
    { calls: ["weather", '{"city":"Oslo"}'] },
    { calls: ["clock", "{}"] },
  ];

  async function answered(pieces: readonly Said[], reason: "stop" | "length" | "tool_calls") {
    const job = await jobOf(chatRequest({ messages: HI, tools: [WEATHER] }, 0).generation);
    const context = answerContext("chatcmpl", job, delivery, new ByteText());
    const events = eventsOf(job, pieces, reason);
    const chunks = new ChatChunks(context);
    return {
      whole: chatAnswer(context, resultsOf(events)),
      chunks: [...chunks.open(), ...events.flatMap((event) => chunks.push(event)), ...chunks.close()],
    };
  }

  test("whole: thoughts, text and calls in the message", async () => {
    const { whole } = await answered(said, "tool_calls");
    const id = expect.stringMatching(/^call_[a-z0-9]{24}$/);
    expect(at(whole, "choices", 0)).toEqual({
      index: 0,
      message: {
        role: "assistant",
        content: "Let me look.",
        refusal: null,
        reasoning_content: "Hm, Oslo.",
        tool_calls: [
          { id, type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } },
          { id, type: "function", function: { name: "clock", arguments: "{}" } },
        ],
      },
      logprobs: null,
      finish_reason: "tool_calls",
    });
    expect(at(whole, "choices", 0, "message", "tool_calls", 0, "id")).not.toBe(
      at(whole, "choices", 0, "message", "tool_calls", 1, "id"),
    );
    expect(at(whole, "usage", "completion_tokens_details", "reasoning_tokens")).toBe(20);
  });

  test("content is null only where calls stand in its place", async () => {
    const content = async (pieces: readonly Said[], reason: "stop" | "tool_calls") =>
      at((await answered(pieces, reason)).whole, "choices", 0, "message", "content");
    expect(await content([{ calls: ["clock", "{}"] }], "tool_calls")).toBeNull();
    expect(await content([{ thinks: "…" }], "stop")).toBe("");
    expect(await content([], "stop")).toBe("");
  });

  test("stream: one kind of delta at a time, nothing null in it, one finish", async () => {
    const { chunks } = await answered(said, "tool_calls");
    const id = expect.stringMatching(/^call_[a-z0-9]{24}$/);
    expect(chunks.map((chunk) => at(chunk, "choices", 0, "delta"))).toEqual([
      { role: "assistant", content: "" },
      { reasoning_content: "Hm, " },
      { reasoning_content: "Oslo. " },
      { content: "Let me" },
      { content: " look." },
      { tool_calls: [{ index: 0, id, type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } }] },
      { tool_calls: [{ index: 1, id, type: "function", function: { name: "clock", arguments: "{}" } }] },
      {},
      undefined,
    ]);
    const finishes = chunks.map((chunk) => at(chunk, "choices", 0, "finish_reason")).filter((reason) => reason != null);
    expect(finishes).toEqual(["tool_calls"]);
    expect(at(chunks.at(-1), "usage", "completion_tokens_details", "reasoning_tokens")).toBe(20);
  });

  test("a turn that a limit cut says so, calls or not", async () => {
    const { whole } = await answered([{ calls: ["clock", "{}"] }], "length");
    expect(at(whole, "choices", 0, "finish_reason")).toBe("length");
  });
});
