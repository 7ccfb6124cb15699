/** OpenAI's SDK against the executable with its own model: chat and responses, streams, tools, abort. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import type { RunningServer } from "../e2e/executable.ts";
import { ANSWER, pleaseCall, QUESTION, serveSmollm2 } from "./smollm2.ts";

let server: RunningServer;
let client: OpenAI;
const model = "SmolLM2-135M-Instruct";

beforeAll(async () => {
  server = await serveSmollm2();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0, timeout: 60_000 });
});
afterAll(() => server[Symbol.asyncDispose]());

const weather = {
  name: "get_weather",
  description: "Weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

test("models", async () => {
  expect((await client.models.list()).data.map(({ id }) => id)).toEqual([model]);
});

test("a chat answer, whole and streamed, is the same", async () => {
  const body = { model, messages: [{ role: "user" as const, content: QUESTION }], temperature: 0 };
  const whole = await client.chat.completions.create(body);
  const text = whole.choices[0]?.message.content ?? "";
  expect(text).toContain(ANSWER);
  expect(whole.choices[0]?.finish_reason).toBe("stop");
  const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  const streamed = await stream.finalChatCompletion();
  expect(streamed.choices[0]?.message.content).toBe(text);
  expect(streamed.usage?.completion_tokens).toBe(whole.usage?.completion_tokens ?? -1);
});

test("a named tool is called, whole and streamed, and its result is taken", async () => {
  const messages = [{ role: "user" as const, content: pleaseCall("get_weather", { city: "Paris" }) }];
  const body = {
    ...{ model, messages, temperature: 0, tools: [{ type: "function" as const, function: weather }] },
    tool_choice: { type: "function" as const, function: { name: "get_weather" } },
  };
  const whole = await client.chat.completions.create(body);
  const message = whole.choices[0]?.message;
  const call = message?.tool_calls?.[0];
  if (message === undefined || call?.type !== "function") throw new Error(JSON.stringify(whole.choices));
  expect(whole.choices[0]?.finish_reason).toBe("tool_calls");
  expect(call.function.name).toBe("get_weather");
  expect(JSON.parse(call.function.arguments)).toEqual({ city: "Paris" });
  const streamed = await client.chat.completions.stream(body).finalChatCompletion();
  expect(streamed.choices[0]?.message.tool_calls?.[0]).toMatchObject({ function: call.function });

  const next = await client.chat.completions.create({
    ...{ model, temperature: 0, max_tokens: 16, tools: body.tools },
    messages: [...messages, message, { role: "tool", tool_call_id: call.id, content: "sunny" }],
  });
  expect(next.choices[0]?.message.role).toBe("assistant");
});

test("responses: a stream with the text that the whole answer has", async () => {
  const body = { model, input: QUESTION, temperature: 0 };
  const whole = await client.responses.create(body);
  expect(whole.status).toBe("completed");
  expect(whole.output_text).toContain(ANSWER);
  const stream = client.responses.stream(body);
  let deltas = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") deltas += event.delta;
  expect(deltas).toBe(whole.output_text);
  expect((await stream.finalResponse()).status).toBe("completed");
});

test("an abort in the middle frees the row", async () => {
  const stream = await client.chat.completions.create({
    ...{ model, temperature: 1.5, seed: 1, stream: true, max_tokens: 500 },
    messages: [{ role: "user", content: "Tell me a long story." }],
  });
  for await (const _ of stream) break;
  stream.controller.abort();
  const deadline = performance.now() + 5000;
  for (;;) {
    const { queue } = (await (await fetch(`${server.url}/health`)).json()) as { queue: { running: number } };
    if (queue.running === 0) break;
    if (performance.now() > deadline) throw new Error("the row still runs");
    await Bun.sleep(20);
  }
});

test("errors are the SDK's own classes", async () => {
  const wrong = client.chat.completions.create({ model, messages: [], temperature: 0 });
  expect(await wrong.catch((error: unknown) => error)).toBeInstanceOf(OpenAI.BadRequestError);
});
