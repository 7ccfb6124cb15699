/** POST /v1/responses: items to turns, answers to items, and streams that coding agents can live on. */
import { describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { responseContext, wholeResponse } from "../../src/server/responses/body.ts";
import { itemMessages } from "../../src/server/responses/items.ts";
import { type ResponseBody, responseRequest } from "../../src/server/responses/request.ts";
import { ResponseStream } from "../../src/server/responses/stream.ts";
import { at, dataLines, harness } from "./harness.ts";
import { writes } from "./scripted-engine.ts";
import { eventsOf, jobOf, resultsOf, type Said } from "./wire.ts";

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

const THOUGHT: Said = { thinks: " Hm. " };
const SAID: readonly Said[] = [
  THOUGHT,
  { says: "Let me" },
  { says: " look." },
  { calls: ["a", '{"x":1}'] },
  { calls: ["b", "{}"] },
  { says: "Done" },
];
const TOOLS = [
  { type: "function", name: "a" },
  { type: "namespace", name: "team", tools: [{ type: "function", name: "b" }] },
];

async function answered(body: Partial<ResponseBody>, said: readonly Said[], reason: "stop" | "length" | "tool_calls") {
  const { generation, echo } = responseRequest({ input: "hi", tools: TOOLS, ...body }, 0, CAP);
  const job = await jobOf(generation);
  const context = responseContext(job, echo);
  const events = eventsOf(job, said, reason);
  const stream = new ResponseStream(context);
  const frames = [...stream.open(), ...events.flatMap((event) => stream.push(event)), ...stream.close()];
  const text = frames.map((frame) => frame.toSSE()).join("");
  return {
    whole: wholeResponse(context, resultsOf(events)),
    text,
    events: dataLines(text.replaceAll(/^event: .*\n/gm, "")),
  };
}

describe("answers", () => {
  test("every key that the SDK's types promise, and items in order", async () => {
    const { whole } = await answered({ reasoning: { summary: "auto" }, instructions: "be" }, SAID, "tool_calls");
    const item = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}_[0-9a-f]{32}$`));
    const call_id = expect.stringMatching(/^call_[a-z0-9]{24}$/);
    const part = (text: string) => ({ type: "output_text", text, annotations: [], logprobs: [] });
    const message = { type: "message", id: item("msg"), status: "completed", role: "assistant" };
    const call = { type: "function_call", id: item("fc"), call_id, status: "completed" };
    expect(whole).toEqual({
      id: item("resp"),
      object: "response",
      created_at: expect.any(Number),
      status: "completed",
      error: null,
      incomplete_details: null,
      instructions: "be",
      metadata: {},
      model: "scripted-1b",
      output: [
        {
          type: "reasoning",
          id: item("rs"),
          summary: [{ type: "summary_text", text: "Hm." }],
          content: [{ type: "reasoning_text", text: "Hm." }],
        },
        { ...message, content: [part("Let me look.")] },
        { ...call, name: "a", arguments: '{"x":1}' },
        { ...call, name: "b", namespace: "team", arguments: "{}" },
        { ...message, content: [part("Done")] },
      ],
      output_text: "Let me look.Done",
      parallel_tool_calls: true,
      temperature: 0,
      tool_choice: "auto",
      tools: [
        { type: "function", name: "a", parameters: null, strict: false },
        { type: "function", name: "b", parameters: null, strict: false },
      ],
      top_p: 1,
      max_output_tokens: null,
      previous_response_id: null,
      reasoning: { effort: null, summary: "auto" },
      text: { format: { type: "text" } },
      truncation: "disabled",
      access_programs: null,
      usage: {
        input_tokens: 20,
        input_tokens_details: { cached_tokens: 3 },
        output_tokens: 50,
        output_tokens_details: { reasoning_tokens: 20 },
        total_tokens: 70,
      },
      x_mlx_dspark: expect.objectContaining({ mode: "baseline", completion_tokens: 50 }),
    });
  });

  test("a limit makes it incomplete, and the text that it cut", async () => {
    const { whole, events } = await answered({}, [{ says: "a b" }], "length");
    expect(whole).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output: [{ type: "message", status: "incomplete" }],
    });
    expect(at(events.at(-1), "type")).toBe("response.incomplete");
    const cutInThoughts = await answered({}, [THOUGHT], "length");
    expect(at(cutInThoughts.whole, "output", "length")).toBe(1);
  });

  test("no text, no item", async () => {
    const { whole, events } = await answered({}, [], "stop");
    expect(whole).toMatchObject({ status: "completed", output: [], output_text: "" });
    expect(events.map((event) => at(event, "type"))).toEqual([
      "response.created",
      "response.in_progress",
      "response.completed",
    ]);
  });

  test("through the SDK: text as it came", async () => {
    await using h = harness();
    const reply = await h.client.responses.create({ model: "gpt", input: "hi", instructions: "be short" });
    expect([reply.output_text, reply.status, reply.model]).toEqual(["Hello, world.", "completed", "gpt"]);
    expect(reply.usage?.total_tokens).toBe(26 + 14);
    expect(h.text.conversations[0]?.messages[0]).toEqual({ role: "system", content: "be short" });
  });
});

describe("streams", () => {
  test("events in their order, numbered from 0, and no item is open while another is", async () => {
    const { events, text } = await answered({ reasoning: { summary: "auto" } }, SAID, "tool_calls");
    const message = (deltas: number) => [
      "response.output_item.added",
      "response.content_part.added",
      ...Array(deltas).fill("response.output_text.delta"),
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
    ];
    const call = [
      "response.output_item.added",
      "response.function_call_arguments.delta",
      "response.function_call_arguments.done",
      "response.output_item.done",
    ];
    expect(events.map((event) => at(event, "type"))).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.reasoning_summary_part.added",
      "response.reasoning_summary_text.delta",
      "response.reasoning_summary_text.done",
      "response.reasoning_summary_part.done",
      "response.output_item.done",
      ...message(2),
      ...call,
      ...call,
      ...message(1),
      "response.completed",
    ]);
    expect(events.map((event) => at(event, "sequence_number"))).toEqual(events.map((_, i) => i));
    const indices = events.flatMap((event) => at(event, "output_index") ?? []);
    expect(indices).toEqual([...indices].sort());
    expect(text).not.toContain("[DONE]");
    const lines = text.split("\n\n").filter((frame) => frame !== "");
    for (const line of lines) {
      const [, name, data] = /^event: (\S+)\ndata: (.*)$/.exec(line) ?? [];
      expect(at(JSON.parse(data ?? ""), "type")).toBe(name);
    }
  });

  test("the last event holds the very items that were streamed", async () => {
    const { events, whole } = await answered({ reasoning: { summary: "auto" } }, SAID, "tool_calls");
    const done = events.filter((event) => at(event, "type") === "response.output_item.done");
    const final = at(events.at(-1), "response");
    expect(at(final, "output")).toEqual(done.map((event) => at(event, "item")));
    const withoutIds = (value: unknown) =>
      JSON.parse(JSON.stringify(value, (key, field: unknown) => (key === "id" || key === "call_id" ? "-" : field)));
    expect(withoutIds(final)).toEqual(withoutIds(whole));
    expect(at(events[0], "response", "status")).toBe("in_progress");
    expect(at(events[0], "response", "x_mlx_dspark", "req")).toMatch(/^[0-9a-f]{8}$/);
  });

  test("thoughts are summarized only for who asked", async () => {
    const { events } = await answered({}, [THOUGHT], "stop");
    expect(events.some((event) => String(at(event, "type")).includes("summary"))).toBe(false);
    expect(at(events.at(-1), "response", "output", 0)).toMatchObject({ summary: [], content: [{ text: "Hm." }] });
  });

  test("through the SDK's helper", async () => {
    await using h = harness(() => writes("Ein Löwe 🦁.", { perStep: 3 }));
    const stream = h.client.responses.stream({ model: "m", input: "hi" });
    const deltas: string[] = [];
    stream.on("response.output_text.delta", ({ delta }) => deltas.push(delta));
    const final = await stream.finalResponse();
    expect([deltas.join(""), final.output_text, final.status]).toEqual(["Ein Löwe 🦁.", "Ein Löwe 🦁.", "completed"]);
  });

  test("silence is filled by comments, headers come at once", async () => {
    await using h = harness(() => writes("x", { stepMs: 100 }), { keepAliveMs: 25 });
    const reply = await h.post("/v1/responses", { input: "hi", stream: true });
    expect(reply.headers.get("content-type")).toBe("text/event-stream");
    expect((await reply.text()).match(/^: keepalive$/gm)?.length).toBeGreaterThanOrEqual(2);
  });

  test("an error after the headers is response.failed, and the last event", async () => {
    const failure = { after: 2, error: { kind: "internal" as const, message: "out of luck in /home/x/engine.ts" } };
    await using h = harness(() => writes("abcdef", { failure }));
    const text = await (await h.post("/v1/responses", { input: "hi", stream: true })).text();
    const last = dataLines(text.replaceAll(/^event: .*\n/gm, "")).at(-1);
    expect(last).toMatchObject({
      type: "response.failed",
      response: { status: "failed", error: { code: "server_error", message: "out of luck in engine.ts" }, usage: null },
    });
  });
});
