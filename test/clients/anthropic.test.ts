/** Anthropic's SDK against the executable with its own model: messages, streams, tools, token counts, abort. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import type { RunningServer } from "../e2e/executable.ts";
import { ANSWER, pleaseCall, QUESTION, serveSmollm2 } from "./smollm2.ts";

let server: RunningServer;
let client: Anthropic;
const model = "SmolLM2-135M-Instruct";

beforeAll(async () => {
  server = await serveSmollm2();
  client = new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0, timeout: 60_000 });
});
afterAll(() => server[Symbol.asyncDispose]());

const weather = {
  name: "get_weather",
  description: "Weather of a city",
  input_schema: { type: "object" as const, properties: { city: { type: "string" } }, required: ["city"] },
};
const user = (content: string) => [{ role: "user" as const, content }];

test("a message, whole and streamed, is the same", async () => {
  const body = { model, max_tokens: 100, messages: user(QUESTION) };
  const whole = await client.messages.create(body);
  expect(whole.stop_reason).toBe("end_turn");
  expect(whole.content).toMatchObject([{ type: "text", text: expect.stringContaining(ANSWER) }]);
  const streamed = await client.messages.stream(body).finalMessage();
  expect(streamed.content).toMatchObject(whole.content.map((block) => ({ ...block })));
  expect(streamed.usage.output_tokens).toBe(whole.usage.output_tokens);
});

test("tokens are counted as they are used", async () => {
  const body = { model, messages: user(QUESTION) };
  const { input_tokens } = await client.messages.countTokens(body);
  const { usage } = await client.messages.create({ ...body, max_tokens: 1 });
  expect(usage.input_tokens + (usage.cache_read_input_tokens ?? 0)).toBe(input_tokens);
});

test("a named tool is called, whole and streamed, and its result is taken", async () => {
  const messages = user(pleaseCall("get_weather", { city: "Paris" }));
  const body = {
    ...{ model, max_tokens: 100, messages, tools: [weather] },
    tool_choice: { type: "tool" as const, name: "get_weather" },
  };
  const whole = await client.messages.create(body);
  expect(whole.stop_reason).toBe("tool_use");
  const call = whole.content.find((block) => block.type === "tool_use");
  expect(call).toMatchObject({ name: "get_weather", input: { city: "Paris" } });
  const streamed = await client.messages.stream(body).finalMessage();
  expect(streamed.content.find((block) => block.type === "tool_use")?.input).toEqual({ city: "Paris" });

  const next = await client.messages.create({
    ...{ model, max_tokens: 16, tools: [weather] },
    messages: [
      ...messages,
      { role: "assistant", content: whole.content },
      { role: "user", content: [{ type: "tool_result", tool_use_id: call?.id ?? "", content: "sunny" }] },
    ],
  });
  expect(next.role).toBe("assistant");
});

test("an abort in the middle frees the row", async () => {
  const stream = client.messages.stream({
    ...{ model, max_tokens: 500, temperature: 1 },
    messages: user("Tell me a long story."),
  });
  for await (const event of stream) if (event.type === "content_block_delta") break;
  stream.abort();
  const deadline = performance.now() + 5000;
  for (;;) {
    const { queue } = (await (await fetch(`${server.url}/health`)).json()) as { queue: { running: number } };
    if (queue.running === 0) break;
    if (performance.now() > deadline) throw new Error("the row still runs");
    await Bun.sleep(20);
  }
});

test("errors are the SDK's own classes", async () => {
  const wrong = client.messages.create({ model, max_tokens: 10, messages: [] });
  expect(await wrong.catch((error: unknown) => error)).toBeInstanceOf(Anthropic.BadRequestError);
});
