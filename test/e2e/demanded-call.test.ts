/** The model in the executable never learnt to call tools; a call that is demanded of it is made all the same, in every dialect. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { at } from "../server/harness.ts";
import { type RunningServer, requireExecutable, serve, temporaryCache } from "./executable.ts";

const cache = temporaryCache();
let server: RunningServer;

beforeAll(async () => {
  requireExecutable();
  server = await serve(cache.path, []);
  await server.ready();
}, 120_000);
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  cache.remove();
});

const SCHEMA = {
  type: "object",
  properties: { city: { enum: ["Oslo", "Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const QUESTION = "How is the weather in Paris?";

async function post(path: string, body: object): Promise<unknown> {
  const reply = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
  expect(reply.status).toBe(200);
  return reply.json();
}

const fn = { name: "get_weather", description: "The weather of a city", parameters: SCHEMA, strict: true };

test.each(["required", { type: "function", function: { name: "get_weather" } }])("chat: %j", async (tool_choice) => {
  const messages = [{ role: "user", content: QUESTION }];
  const body = { messages, tools: [{ type: "function", function: fn }], tool_choice, parallel_tool_calls: false };
  const reply = await post("/v1/chat/completions", { ...body, max_tokens: 60 });
  const choice = at(reply, "choices", 0);
  expect(at(choice, "finish_reason")).toBe("tool_calls");
  expect(at(choice, "message", "tool_calls")).toMatchObject([{ function: { name: "get_weather" } }]);
  const given: unknown = JSON.parse(String(at(choice, "message", "tool_calls", 0, "function", "arguments")));
  expect(given).toEqual({ city: "Paris" });
  expect(at(reply, "x_mlx_dspark", "grammar", "kind")).toBe("tools");
  expect(at(reply, "x_mlx_dspark", "mode")).toBe("dspark");
});

test("messages", async () => {
  const { parameters, ...tool } = fn;
  const reply = await post("/v1/messages", {
    messages: [{ role: "user", content: QUESTION }],
    tools: [{ ...tool, input_schema: parameters }],
    tool_choice: { type: "any", disable_parallel_tool_use: true },
    max_tokens: 60,
  });
  expect(at(reply, "stop_reason")).toBe("tool_use");
  expect(at(reply, "content")).toMatchObject([{ type: "tool_use", name: "get_weather", input: { city: "Paris" } }]);
});

test("responses", async () => {
  const body = {
    input: QUESTION,
    tools: [{ type: "function", ...fn }],
    tool_choice: "required",
    parallel_tool_calls: false,
  };
  const reply = await post("/v1/responses", { ...body, max_output_tokens: 60 });
  const output = at(reply, "output");
  expect(output).toMatchObject([{ type: "function_call", name: "get_weather" }]);
  expect(JSON.parse(String(at(output, 0, "arguments")))).toEqual({ city: "Paris" });
});
