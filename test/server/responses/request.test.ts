/** Bodies of POST /v1/responses: items to turns, tools, and what is refused by name. */
import { describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { itemMessages } from "../../../src/server/responses/items.ts";
import { type ResponseBody, responseRequest } from "../../../src/server/responses/request.ts";
import { at, harness } from "../harness.ts";

const CAP = { maxTokensCap: 777 };

function messagesOf(body: Partial<ResponseBody>) {
  const { prompt } = responseRequest({ input: "hi", ...body }, 0, CAP).generation;
  return at(prompt, "conversation", "messages");
}

describe("input", () => {
  test("a text is one user's message; instructions stand before it and before a developer's", () => {
    expect(messagesOf({})).toEqual([{ role: "user", content: "hi" }]);
    const input = [
      { role: "developer", content: "b" },
      { type: "message", role: "user", content: [{ type: "input_text", text: "c" }, "d"], id: "x" },
    ];
    expect(messagesOf({ input, instructions: "a" })).toEqual([
      { role: "system", content: "a" },
      { role: "developer", content: "b" },
      { role: "user", content: "c\nd" },
    ]);
  });

  test("calls that follow each other join the assistant's words; results name their call", () => {
    const call = (id: string) => ({ type: "function_call", call_id: id, name: "f", arguments: `{"a":"${id}"}` });
    const output = (id: string) => ({
      type: "function_call_output",
      call_id: id,
      output: [{ type: "input_text", text: id }],
    });
    const said = { type: "message", role: "assistant", content: [{ type: "output_text", text: "let me" }] };
    const messages = itemMessages([said, call("1"), call("2"), output("1"), output("2"), call("3"), output("3")]);
    const made = (id: string) => ({ id, name: "f", arguments: `{"a":"${id}"}` });
    expect(messages).toEqual([
      { role: "assistant", content: "let me", toolCalls: [made("1"), made("2")] },
      { role: "tool", toolCallId: "1", content: "1" },
      { role: "tool", toolCallId: "2", content: "2" },
      { role: "assistant", content: "", toolCalls: [made("3")] },
      { role: "tool", toolCallId: "3", content: "3" },
    ]);
  });

  test("thoughts belong to the assistant's turn behind them, else to none", () => {
    const thought = (text: string) => ({
      type: "reasoning",
      id: "r",
      summary: [{ type: "summary_text", text }],
      content: null,
    });
    const call = { type: "function_call", call_id: "1", name: "f", arguments: "{}" };
    const messages = itemMessages([
      thought("lost"),
      { role: "user", content: "q" },
      { type: "reasoning", summary: [{ text: "short" }], content: [{ type: "reasoning_text", text: "long" }] },
      { role: "assistant", content: "w" },
      thought("and then"),
      call,
    ]);
    expect(messages).toEqual([
      { role: "user", content: "q" },
      {
        role: "assistant",
        content: "w",
        reasoning: "long\n\nand then",
        toolCalls: [{ id: "1", name: "f", arguments: "{}" }],
      },
    ]);
  });

  test("items of other kinds are skipped, whatever they look like", () => {
    const odd = [{ type: "web_search_call", content: 7 }, { type: "item_reference", id: 1 }, 5, null, [], {}];
    expect(messagesOf({ input: [...odd, { role: "user", content: "q" }] })).toEqual([{ role: "user", content: "q" }]);
  });
});

describe("tools", () => {
  const flat = { type: "function", name: "a", description: "A", parameters: { type: "object" }, strict: false };
  const inner = { type: "function", name: "b", parameters: { type: "object" }, strict: true };
  const all = [
    flat,
    { type: "function", function: { name: "c" } },
    { type: "namespace", name: "team", description: "d", tools: [inner, { type: "custom", name: "z" }] },
    { type: "web_search", filters: 1 },
    { type: "custom", name: "patch" },
    { type: "local_shell" },
    { ...inner, name: "a" },
  ];

  test("functions are taken, flat, nested and out of namespaces; the service's own are dropped", () => {
    const { generation } = responseRequest({ input: "hi", tools: all, parallel_tool_calls: false }, 0, CAP);
    expect(generation.toolPolicy).toEqual({
      tools: [
        { name: "a", description: "A", parameters: { type: "object" }, strict: false },
        { name: "c", strict: false },
        { name: "b", parameters: { type: "object" }, strict: true },
      ],
      choice: { kind: "auto" },
      parallel: false,
    });
  });

  test("a named one", () => {
    const body = { input: "hi", tools: all, tool_choice: { type: "function" as const, name: "b" } };
    expect(responseRequest(body, 0, CAP).generation.toolPolicy.choice).toEqual({ kind: "named", name: "b" });
  });

  test("with none of ours left, auto means no tools and required is an error", async () => {
    await using h = harness();
    const tools = [{ type: "web_search" }];
    expect((await h.post("/v1/responses", { input: "hi", tools, tool_choice: "auto" })).status).toBe(200);
    const reply = await h.post("/v1/responses", { input: "hi", tools, tool_choice: "required" });
    expect([reply.status, at(await reply.json(), "error", "param")]).toEqual([400, "tool_choice"]);
  });
});

describe("fields", () => {
  test("no limit means the cap, not the default; effort is mapped; sampling as on chat", () => {
    const { generation } = responseRequest({ input: "hi" }, 1, CAP);
    expect([generation.maxTokens, generation.priority, generation.promptParam]).toEqual([777, 1, "input"]);
    expect(responseRequest({ input: "hi", max_output_tokens: 5 }, 0, CAP).generation.maxTokens).toBe(5);
    const reasoning = responseRequest({ input: "hi", reasoning: { effort: "minimal" } }, 0, CAP).generation.reasoning;
    expect(reasoning).toEqual({ thinking: undefined, effort: "low", split: true });
    const warm = responseRequest({ input: "hi", temperature: 0.5, top_p: 0.9 }, 0, CAP).generation;
    expect([warm.temperature, warm.topP]).toEqual([0.5, 0.9]);
  });

  test.each([
    ["no input", {}, "input", /'input' is required/],
    ["input empty", { input: "" }, "input", /'input' must be a non-empty string or list/],
    ["input an empty list", { input: [] }, "input", /'input' must be a non-empty string or list/],
    ["nothing usable", { input: [{ type: "compaction" }] }, "input", /'input' must be a non-empty string or list/],
    ["input a number", { input: 5 }, "input", /a string or a list, got 5/],
    ["role", { input: [{ role: "bot", content: "x" }] }, "input[0].role", /user, assistant, system or developer/],
    [
      "call without id",
      { input: [{ type: "function_call", name: "f", arguments: "" }] },
      "input[0].call_id",
      /required/,
    ],
    [
      "output a number",
      { input: [{ type: "function_call_output", call_id: "1", output: 3 }] },
      "input[0].output",
      /list/,
    ],
    [
      "picture",
      { input: [{ role: "user", content: [{ type: "input_image", image_url: "data:image/png;base64,iVBOR" }] }] },
      "input[0].content[0].type",
      /'input_image' is not supported/,
    ],
    [
      "file",
      { input: [{ role: "user", content: [{ type: "input_file" }] }] },
      "input[0].content[0].type",
      /input_file/,
    ],
    ["earlier response", { input: "hi", previous_response_id: "resp_1" }, "previous_response_id", /keeps nothing/],
    ["conversation", { input: "hi", conversation: { id: "c" } }, "conversation", /keeps nothing/],
    ["background", { input: "hi", background: true }, "background", /not supported/],
    ["effort", { input: "hi", reasoning: { effort: "mega" } }, "reasoning.effort", /got 'mega'/],
    ["format", { input: "hi", text: { format: { type: "json_object" } } }, "text.format", /not supported/],
    [
      "schema missing",
      { input: "hi", text: { format: { type: "json_schema", name: "a" } } },
      "text.format.schema",
      /req/,
    ],
    ["tool name", { input: "hi", tools: [{ type: "function" }] }, "tools[0].name", /required/],
    [
      "inner tool",
      { input: "hi", tools: [{ type: "namespace", name: "n", tools: [{ type: "function" }] }] },
      "tools[0].tools[0].name",
      /required/,
    ],
    ["limit zero", { input: "hi", max_output_tokens: 0 }, "max_output_tokens", /not below 1/],
    ["temperature", { input: "hi", temperature: 3 }, "temperature", /between 0 and 2/],
  ])("refused: %s", async (_name, body, param, message) => {
    await using h = harness();
    const reply = await h.post("/v1/responses", body);
    const text = await reply.text();
    expect([reply.status, at(JSON.parse(text), "error", "param")]).toEqual([400, param]);
    expect(at(JSON.parse(text), "error", "message")).toMatch(message);
    expect(text).not.toContain("iVBOR");
    expect(h.engine.requests).toEqual([]);
  });

  test("what a client sends besides is let through", async () => {
    await using h = harness();
    const reply = await h.post("/v1/responses", {
      input: "hi",
      store: true,
      include: ["reasoning.encrypted_content"],
      metadata: { a: "b" },
      truncation: "auto",
      service_tier: "flex",
      user: "u",
      previous_response_id: null,
      background: false,
      reasoning: { effort: null, summary: null },
      text: { verbosity: "low" },
      tools: [],
    });
    expect(reply.status).toBe(200);
  });

  test("too long a prompt has the words and the code that clients know", async () => {
    await using h = harness();
    const error = await h.client.responses.create({ model: "m", input: "x".repeat(5000) }).catch((e: unknown) => e);
    if (!(error instanceof OpenAI.BadRequestError)) throw new Error("expected a BadRequestError");
    expect(error.message).toContain("prompt is too long: 5007 tokens > 4096 maximum");
    expect([error.code, error.param]).toEqual(["context_length_exceeded", "input"]);
  });

  test("stored responses are not there, and only POST makes one", async () => {
    await using h = harness();
    for (const [method, path] of [
      ["GET", "/v1/responses/resp_1"],
      ["DELETE", "/responses/resp_1"],
      ["POST", "/v1/responses/resp_1/cancel"],
      ["GET", "/v1/responses/resp_1/input_items"],
    ] as const) {
      const reply = await fetch(h.url + path, { method });
      expect(reply.status).toBe(404);
      expect(at(await reply.json(), "error")).toMatchObject({
        type: "not_found",
        code: "not_found",
        message: expect.stringContaining("stateless"),
      });
    }
    expect((await fetch(`${h.url}/v1/responses`)).status).toBe(405);
  });
});
