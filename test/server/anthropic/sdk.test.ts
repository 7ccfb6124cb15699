/** The official SDK against the server: messages, streams with its helper, a round of tools, abort, errors, counting. */
import { describe, expect, test } from "bun:test";
import Anthropic, { APIError, APIUserAbortError, BadRequestError, RateLimitError } from "@anthropic-ai/sdk";
import { at, until } from "../harness.ts";
import { templateServer } from "./template-server.ts";

const HI = { model: "any", max_tokens: 100, messages: [{ role: "user" as const, content: "hi" }] };
const WEATHER: Anthropic.Tool = {
  name: "weather",
  description: "Of a city",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const call = (city: string) => `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
const STORY = " Ein Löwe 🦁 geht über die Straße — 日本語.\n";

describe("messages", () => {
  test("whole and streamed give the same message", async () => {
    await using server = templateServer([`<think>\nLet me see.\n</think>\n\n${STORY}`]);
    const whole = await server.client.messages.create(HI);
    expect(whole.content).toEqual([
      { type: "thinking", thinking: "Let me see.", signature: "mlx-dspark" },
      { type: "text", text: STORY.trimStart() },
    ] as Anthropic.ContentBlock[]);
    expect([whole.stop_reason, whole.usage.output_tokens > 10]).toEqual(["end_turn", true]);
    expect(whole._request_id).toMatch(/^req_/);
    const stream = server.client.messages.stream(HI);
    const pieces: string[] = [];
    stream.on("text", (text) => pieces.push(text));
    const final = await stream.finalMessage();
    expect(pieces.join("")).toBe(STORY.trimStart());
    expect(final.content.map(({ type }) => type)).toEqual(["thinking", "text"]);
    expect(at(final.content[0], "thinking")).toMatch(/^Let me see\.\s*$/);
    expect(at(final.content[1], "text")).toBe(STORY.trimStart());
    expect(final.stop_reason).toBe("end_turn");
    expect(final.usage).toMatchObject({
      input_tokens: whole.usage.input_tokens,
      cache_read_input_tokens: whole.usage.cache_read_input_tokens,
      output_tokens: whole.usage.output_tokens,
    });
  });

  test("raw events of a stream", async () => {
    await using server = templateServer(["a b"]);
    const events: string[] = [];
    for await (const event of await server.client.messages.create({ ...HI, stream: true })) events.push(event.type);
    expect(events[0]).toBe("message_start");
    expect(events.at(-1)).toBe("message_stop");
  });

  test("thinking disabled: the prompt says so, and no thoughts are told", async () => {
    await using server = templateServer(["<think>\nhm\n</think>\n\nyes"]);
    const message = await server.client.messages.create({ ...HI, thinking: { type: "disabled" } });
    expect(message.content).toEqual([{ type: "text", text: "yes" }] as Anthropic.ContentBlock[]);
    expect(server.promptOf(0)).toEndWith("<think>\n\n</think>\n\n");
  });

  test("a prefill is continued, not repeated", async () => {
    await using server = templateServer([" Paris."]);
    const prefill = { role: "assistant" as const, content: "The capital is" };
    const message = await server.client.messages.create({ ...HI, messages: [...HI.messages, prefill] });
    expect(server.promptOf(0)).toEndWith("<|im_start|>assistant\nThe capital is");
    expect(message.content).toEqual([{ type: "text", text: " Paris." }] as Anthropic.ContentBlock[]);
  });
});

describe("tools", () => {
  test("a loop of two steps: the next prompt begins with the last one and what was generated", async () => {
    const answers = [`<think>\nTwo cities.\n</think>\n\nLooking.\n${call("Oslo")}\n${call("Rome")}`, "Cold and warm."];
    await using server = templateServer(answers);
    const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Weather?" }];
    const asked = await server.client.messages.stream({ ...HI, messages, tools: [WEATHER] }).finalMessage();
    expect(asked.stop_reason).toBe("tool_use");
    const calls = asked.content.filter((block) => block.type === "tool_use");
    expect(calls.map(({ name, input }) => [name, input])).toEqual([
      ["weather", { city: "Oslo" }],
      ["weather", { city: "Rome" }],
    ]);
    expect(asked.content.map(({ type }) => type)).toEqual(["thinking", "text", "tool_use", "tool_use"]);
    expect(asked.content[1]).toMatchObject({ text: "Looking." });
    const results = calls.map(({ id, input }) => ({
      type: "tool_result" as const,
      tool_use_id: id,
      content: `weather of ${at(input, "city")}`,
    }));
    messages.push({ role: "assistant", content: asked.content }, { role: "user", content: results });
    const answer = await server.client.messages.create({ ...HI, messages, tools: [WEATHER] });
    expect(answer.content).toEqual([{ type: "text", text: "Cold and warm." }] as Anthropic.ContentBlock[]);
    expect(server.promptOf(1)).toStartWith(server.promptOf(0) + answers[0]);
    expect(server.promptOf(1)).toContain("weather of Oslo");
  });

  test("the SDK's tool runner completes", async () => {
    await using server = templateServer([call("Oslo"), "Cold."]);
    const asked: unknown[] = [];
    const run = (input: unknown) => {
      asked.push(input);
      return "4 degrees";
    };
    const tool = { ...WEATHER, type: "custom" as const, run, parse: (input: unknown) => input };
    const answer = await server.client.beta.messages.toolRunner({ ...HI, tools: [tool] });
    expect(asked).toEqual([{ city: "Oslo" }]);
    expect(answer.content).toMatchObject([{ type: "text", text: "Cold." }]);
  });

  test("one call at a time, and none when none may be made", async () => {
    await using server = templateServer([`${call("Oslo")}\n${call("Rome")}`]);
    const single = { type: "auto" as const, disable_parallel_tool_use: true };
    const one = await server.client.messages.create({ ...HI, tools: [WEATHER], tool_choice: single });
    expect(one.content.map(({ type }) => type)).toEqual(["tool_use"]);
    const text = await server.client.messages.create({ ...HI, tools: [WEATHER], tool_choice: { type: "none" } });
    expect(text.content.map(({ type }) => type)).toEqual(["text"]);
    expect(server.promptOf(1)).not.toContain("weather");
  });
});

describe("endings", () => {
  test("an abort ends the row", async () => {
    await using server = templateServer(["word "], {}, { stepMs: 5, endless: true });
    const stream = server.client.messages.stream({ ...HI, max_tokens: 10_000 });
    await until(() => server.engine.active === 1);
    stream.abort();
    await expect(stream.finalMessage()).rejects.toBeInstanceOf(APIUserAbortError);
    await until(() => server.engine.active === 0);
  });

  test("errors are the SDK's classes, with the type and the request's id", async () => {
    await using server = templateServer(["x"], { maxBatch: 1, maxQueue: 0 }, { stepMs: 10, endless: true });
    const refused = await server.client.messages.create({ ...HI, messages: [] }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(BadRequestError);
    expect([at(refused, "status"), at(refused, "error", "error", "type")]).toEqual([400, "invalid_request_error"]);
    expect(at(refused, "requestID")).toBe(at(refused, "error", "request_id"));
    const running = server.client.messages.stream({ ...HI, max_tokens: 10_000 });
    const ended = running.finalMessage().catch((error: unknown) => error);
    await until(() => server.engine.active === 1);
    const second = await server.client.messages.create(HI).catch((error: unknown) => error);
    expect(second).toBeInstanceOf(RateLimitError);
    running.abort();
    expect(await ended).toBeInstanceOf(APIUserAbortError);
  });

  test("an error in the middle of a stream reaches the client with its message", async () => {
    const failure = { after: 1, error: { kind: "internal", message: "out of memory" } } as const;
    await using server = templateServer(["one two three"], {}, { failure });
    const error = await server.client.messages
      .stream(HI)
      .finalMessage()
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(APIError);
    expect(String(at(error, "message"))).toContain("out of memory");
  });

  test("a stop sequence is told", async () => {
    await using server = templateServer(["one END two"]);
    const message = await server.client.messages.create({ ...HI, stop_sequences: ["END"] });
    expect([message.stop_reason, message.stop_sequence]).toEqual(["stop_sequence", "END"]);
    expect(message.content).toEqual([{ type: "text", text: "one " }] as Anthropic.ContentBlock[]);
  });
});

test("countTokens and models.list", async () => {
  await using server = templateServer(["x"]);
  const { max_tokens: _, ...body } = { ...HI, tools: [WEATHER], system: "Be brief." };
  const { input_tokens: counted } = await server.client.messages.countTokens(body);
  const { usage } = await server.client.messages.create({ ...HI, tools: [WEATHER], system: "Be brief." });
  expect(counted).toBe(usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
  const models = await server.client.models.list();
  expect(models.data.map(({ id }) => id)).toEqual(["scripted-1b"]);
});

test("the key goes in either header", async () => {
  await using server = templateServer(["x"], { apiKey: "secret" });
  expect((await server.client.messages.create(HI)).stop_reason).toBe("end_turn");
  const bearer = new Anthropic({ baseURL: server.url, authToken: "secret", apiKey: null, maxRetries: 0 });
  expect((await bearer.messages.create(HI)).stop_reason).toBe("end_turn");
  const wrong = new Anthropic({ baseURL: server.url, apiKey: "guess", maxRetries: 0 });
  expect(await wrong.messages.create(HI).catch((error: unknown) => at(error, "status"))).toBe(401);
});
