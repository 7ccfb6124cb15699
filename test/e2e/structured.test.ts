/**
 * Structured output on the executable with its own pair: what is demanded is an instance of its schema in every dialect,
 * streamed and not, and the same text with drafts as without, from two servers over one cache.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { fieldAt, Reply } from "../support/http-reply.ts";
import { complaint, SCHEMAS } from "../support/schemas.ts";
import { type RunningServer, requireExecutable, serve, temporaryCache } from "./executable.ts";

setDefaultTimeout(60_000);
const cache = temporaryCache();
let drafting: RunningServer;
let baseline: RunningServer;

beforeAll(async () => {
  requireExecutable();
  drafting = await serve(cache.path, []);
  await drafting.ready();
  // The first one has unpacked what both of them need.
  baseline = await serve(cache.path, ["--mode", "baseline"]);
  await baseline.ready();
}, 120_000);
afterAll(async () => {
  await drafting[Symbol.asyncDispose]();
  await baseline[Symbol.asyncDispose]();
  cache.remove();
});

type Path = "/v1/chat/completions" | "/v1/messages" | "/v1/responses";

async function post(server: RunningServer, path: Path, body: object): Promise<Reply> {
  const started = performance.now();
  const reply = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
  return new Reply(reply.status, reply.headers, await reply.text(), performance.now() - started);
}

async function answered(server: RunningServer, path: Path, body: object): Promise<Reply> {
  const reply = await post(server, path, body);
  if (reply.status !== 200) throw new Error(reply.text);
  return reply;
}

const chat = (server: RunningServer, body: object) => answered(server, "/v1/chat/completions", body);

const asked = (content: string) => [{ role: "user", content }];
const jsonSchema = (schema: object, strict = true) => ({
  response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict } },
});
const schemaOf = (name: string): object => {
  const schema = SCHEMAS[name];
  if (schema === undefined) throw new Error(name);
  return schema;
};

/** The part of `x_mlx_dspark` that these tests look at. */
interface Block {
  readonly mode: string;
  readonly drafted?: number;
  readonly accepted?: number;
  readonly completion_tokens: number;
  readonly grammar: { readonly kind: string; readonly masked_rows: number; readonly forced_tokens: number };
}

const blockOf = (reply: Reply) =>
  (reply.isStream ? reply.each("x_mlx_dspark").at(-1) : reply.at("x_mlx_dspark")) as Block;

const GREEDY = { temperature: 0 };
const SEEDED = { temperature: 0.9, top_p: 0.95, seed: 11 };

describe("chat completions", () => {
  test.each([
    ["person", "Describe Maria Lopez from Madrid, who is 34 years old.", GREEDY],
    ["nested", "Where does Maria Lopez from Madrid live?", GREEDY],
    ["verdict", "Is the film good? It was far too long and nobody laughed.", SEEDED],
    ["list", "What do I need to bake bread?", SEEDED],
  ])(
    "a strict schema, %s: streamed and not, with drafts and without, the same instance",
    async (name, content, how) => {
      const schema = schemaOf(name);
      const body = { messages: asked(content), ...jsonSchema(schema), max_tokens: 150, ...how };
      const [whole, streamed, plain] = await Promise.all([
        chat(drafting, body),
        chat(drafting, { ...body, stream: true }),
        chat(baseline, body),
      ]);
      expect(complaint(schema, whole.content)).toBe("");
      expect(whole.at("choices", 0, "finish_reason")).toBe("stop");
      expect(streamed.each("choices", 0, "finish_reason")).toEqual(["stop"]);
      expect([streamed.content, plain.content]).toEqual([whole.content, whole.content]);

      for (const reply of [whole, streamed]) {
        const { mode, drafted = 0, accepted = 0, completion_tokens, grammar } = blockOf(reply);
        expect([mode, grammar.kind]).toEqual(["dspark", "json_schema"]);
        expect(accepted).toBeGreaterThan(0);
        expect(drafted).toBeGreaterThanOrEqual(accepted);
        // What must follow was drafted, and each token was masked, also those that drafts brought.
        expect(grammar.forced_tokens).toBeGreaterThan(0);
        expect(grammar.masked_rows).toBeGreaterThanOrEqual(completion_tokens);
      }
      const { mode, drafted, grammar } = blockOf(plain);
      expect([mode, drafted, grammar.forced_tokens]).toEqual(["baseline", undefined, 0]);
    },
  );

  test("any object", async () => {
    const messages = asked("Give the capital of France as a JSON object with one key.");
    const body = { messages, response_format: { type: "json_object" }, max_tokens: 120, ...GREEDY };
    const [whole, streamed, plain] = await Promise.all([
      chat(drafting, body),
      chat(drafting, { ...body, stream: true }),
      chat(baseline, body),
    ]);
    expect(whole.at("choices", 0, "finish_reason")).toBe("stop");
    expect(complaint({ type: "object" }, whole.content)).toBe("");
    expect([streamed.content, plain.content]).toEqual([whole.content, whole.content]);
    expect(blockOf(whole).grammar.kind).toBe("json_object");
  });

  test("several choices are those of their seeds", async () => {
    const schema = schemaOf("verdict");
    const body = { messages: asked("Was the concert good?"), ...jsonSchema(schema), max_tokens: 80, ...SEEDED };
    const [both, second] = await Promise.all([
      chat(drafting, { ...body, n: 2 }),
      chat(baseline, { ...body, seed: SEEDED.seed + 1 }),
    ]);
    const texts = [0, 1].map((i) => String(both.at("choices", i, "message", "content")));
    expect(texts.map((text) => complaint(schema, text))).toEqual(["", ""]);
    expect(texts[1]).toBe(second.content);
  });
});

const BOOKING = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 30 },
    people: { type: "integer", minimum: 1, maximum: 12 },
    day: { enum: ["Thursday", "Friday", "Saturday"] },
    outside: { type: "boolean" },
  },
  required: ["name", "people", "day", "outside"],
  additionalProperties: false,
};
const CANCELLATION = {
  type: "object",
  properties: { code: { type: "string", pattern: "^[A-Z]{2}[0-9]{3}$" } },
  required: ["code"],
  additionalProperties: false,
};
const TOOLS = { book_table: BOOKING, cancel_table: CANCELLATION };
const functions = Object.entries(TOOLS).map(([name, parameters]) => ({ name, parameters, strict: true }));
const chatTools = functions.map((one) => ({ type: "function", function: one }));
const claudeTools = functions.map(({ parameters, ...tool }) => ({ ...tool, input_schema: parameters }));
const REQUEST = asked("Book a table for Maria Lopez for four people on Friday.");

/** Name and arguments as text. */
type Call = readonly [string, string];

function chatCalls(reply: Reply): Call[] {
  const deltas = reply.isStream
    ? reply.each("choices", 0, "delta", "tool_calls").flat()
    : ((reply.at("choices", 0, "message", "tool_calls") ?? []) as unknown[]);
  const calls: [string, string][] = [];
  for (const [i, delta] of deltas.entries()) {
    const index = Number(fieldAt(delta, ["index"]) ?? i);
    const call = calls[index] ?? [String(fieldAt(delta, ["function", "name"])), ""];
    call[1] += String(fieldAt(delta, ["function", "arguments"]));
    calls[index] = call;
  }
  return calls;
}

/** At least one call, each of a tool that may be called and with arguments that fit it. */
function checkCalls(calls: readonly Call[], names: readonly string[] = Object.keys(TOOLS)): void {
  expect(calls.length).toBeGreaterThan(0);
  for (const [name, args] of calls) {
    expect(names).toContain(name);
    expect(complaint(TOOLS[name as keyof typeof TOOLS], args)).toBe("");
  }
}

describe("demanded calls", () => {
  const NAMED = { type: "function", function: { name: "cancel_table" } };

  test.each([
    ["required, greedy", "required", GREEDY, undefined],
    ["required, one call with a seed", "required", { ...SEEDED, parallel_tool_calls: false }, undefined],
    ["named", NAMED, { ...GREEDY, parallel_tool_calls: false }, ["cancel_table"]],
  ] as const)("%s", async (_, tool_choice, how, names) => {
    const body = { messages: REQUEST, tools: chatTools, tool_choice, max_tokens: 150, ...how };
    const [whole, streamed, plain] = await Promise.all([
      chat(drafting, body),
      chat(drafting, { ...body, stream: true }),
      chat(baseline, body),
    ]);
    const calls = chatCalls(whole);
    checkCalls(calls, names);
    if ("parallel_tool_calls" in how) {
      expect(calls).toHaveLength(1);
      expect(whole.at("choices", 0, "finish_reason")).toBe("tool_calls");
    }
    expect(streamed.each("choices", 0, "finish_reason")).toEqual([whole.at("choices", 0, "finish_reason")]);
    expect(chatCalls(streamed)).toEqual(calls);
    expect(chatCalls(plain)).toEqual(calls);
    const { drafted = 0, accepted = 0, grammar } = blockOf(whole);
    expect(grammar.kind).toBe("tools");
    expect(grammar.forced_tokens).toBeGreaterThan(0);
    expect(drafted).toBeGreaterThanOrEqual(accepted);
    expect(accepted).toBeGreaterThan(0);
  });

  test.each([
    ["any", { type: "any", disable_parallel_tool_use: true }, undefined],
    ["tool", { type: "tool", name: "cancel_table", disable_parallel_tool_use: true }, ["cancel_table"]],
  ] as const)("Anthropic's %s", async (_, tool_choice, names) => {
    const body = { messages: REQUEST, tools: claudeTools, tool_choice, max_tokens: 150, ...GREEDY };
    const [whole, streamed, plain] = await Promise.all([
      answered(drafting, "/v1/messages", body),
      answered(drafting, "/v1/messages", { ...body, stream: true }),
      answered(baseline, "/v1/messages", body),
    ]);
    const callsOf = (reply: Reply) =>
      (reply.at("content") as unknown[]).map((block): Call => {
        expect(fieldAt(block, ["type"])).toBe("tool_use");
        return [String(fieldAt(block, ["name"])), JSON.stringify(fieldAt(block, ["input"]))];
      });
    const calls = callsOf(whole);
    expect(calls).toHaveLength(1);
    checkCalls(calls, names);
    expect(whole.at("stop_reason")).toBe("tool_use");
    expect(callsOf(plain)).toEqual(calls);
    const input: unknown = JSON.parse(streamed.each("delta", "partial_json").join(""));
    expect([[streamed.each("content_block", "name")[0], JSON.stringify(input)]]).toEqual(
      calls.map((call) => [...call]),
    );
    expect(streamed.each("delta", "stop_reason")).toEqual(["tool_use"]);
  });
});

describe("formats of the other dialects", () => {
  const schema = schemaOf("verdict");
  const QUESTION = "Is the film good? It was far too long and nobody laughed.";

  test("Responses", async () => {
    const format = { type: "json_schema", name: "verdict", schema, strict: true };
    const body = { input: QUESTION, text: { format }, max_output_tokens: 100, ...GREEDY };
    const [whole, streamed, plain] = await Promise.all([
      answered(drafting, "/v1/responses", body),
      answered(drafting, "/v1/responses", { ...body, stream: true }),
      answered(baseline, "/v1/responses", body),
    ]);
    const text = String(whole.at("output", 0, "content", 0, "text"));
    expect(complaint(schema, text)).toBe("");
    expect(whole.at("status")).toBe("completed");
    expect(plain.at("output", 0, "content", 0, "text")).toBe(text);
    const deltas = streamed.frames.filter((frame) => fieldAt(frame, ["type"]) === "response.output_text.delta");
    expect(deltas.map((frame) => fieldAt(frame, ["delta"])).join("")).toBe(text);
    expect(fieldAt(streamed.frames.at(-1), ["response", "output", 0, "content", 0, "text"])).toBe(text);
    expect(blockOf(whole).accepted ?? 0).toBeGreaterThan(0);
  });

  test("Messages", async () => {
    const body = {
      messages: asked(QUESTION),
      output_config: { format: { type: "json_schema", schema } },
      max_tokens: 100,
      ...GREEDY,
    };
    const [whole, plain] = await Promise.all([
      answered(drafting, "/v1/messages", body),
      answered(baseline, "/v1/messages", body),
    ]);
    const text = String(whole.at("content", 0, "text"));
    expect(complaint(schema, text)).toBe("");
    expect(whole.at("stop_reason")).toBe("end_turn");
    expect(plain.at("content", 0, "text")).toBe(text);
  });
});

describe("a limit in the middle", () => {
  test("of an answer leaves its beginning", async () => {
    const messages = asked("Describe Maria Lopez from Madrid, who is 34 years old.");
    const body = { messages, ...jsonSchema(schemaOf("person")), ...GREEDY };
    const whole = await chat(drafting, { ...body, max_tokens: 150 });
    const tokens = blockOf(whole).completion_tokens;
    const limits = [1, 2, 7, tokens - 1];
    const cut = await Promise.all(
      limits.map((max_tokens, i) => chat(drafting, { ...body, max_tokens, stream: i % 2 === 1 })),
    );
    let shown = 0;
    for (const [i, reply] of cut.entries()) {
      const end = reply.isStream
        ? reply.each("choices", 0, "finish_reason")
        : [reply.at("choices", 0, "finish_reason")];
      expect(end).toEqual(["length"]);
      expect(blockOf(reply).completion_tokens).toBe(limits[i] ?? 0);
      expect(whole.content.startsWith(reply.content)).toBe(true);
      expect(reply.content.length).toBeGreaterThan(shown);
      shown = reply.content.length;
    }
  });

  test("of a call leaves no call, in every dialect", async () => {
    const common = { max_tokens: 15, ...GREEDY };
    const [openai, anthropic, responses] = await Promise.all([
      chat(drafting, { messages: REQUEST, tools: chatTools, tool_choice: "required", ...common }),
      answered(drafting, "/v1/messages", {
        messages: REQUEST,
        tools: claudeTools,
        tool_choice: { type: "any" },
        ...common,
      }),
      answered(drafting, "/v1/responses", {
        input: REQUEST,
        tools: functions.map((one) => ({ type: "function", ...one })),
        tool_choice: "required",
        max_output_tokens: 15,
        ...GREEDY,
      }),
    ]);
    expect(openai.at("choices", 0)).toMatchObject({ finish_reason: "length", message: { content: "" } });
    expect(chatCalls(openai)).toEqual([]);
    expect(anthropic.at("stop_reason")).toBe("max_tokens");
    expect(anthropic.at("content")).toEqual([{ type: "text", text: "" }]);
    expect(responses.at("incomplete_details", "reason")).toBe("max_output_tokens");
    expect(responses.at("output")).toEqual([]);
  });
});

describe("a schema that cannot be held is refused by name", () => {
  const field = (schema: unknown) => ({
    type: "object",
    properties: { a: schema },
    required: ["a"],
    additionalProperties: false,
  });
  const UNSUPPORTED = field({ type: "array", items: { type: "integer" }, uniqueItems: true });
  const format = (schema: object) => ({ type: "json_schema", name: "answer", schema, strict: true });

  test.each([
    ["unsupported", UNSUPPORTED, "/properties/a/uniqueItems: 'uniqueItems' is not supported"],
    ["of numbers", field({ type: "integer", minimum: 5, maximum: 3 }), "/properties/a/minimum: is above the maximum"],
    [
      "of lengths",
      field({ type: "string", minLength: 9, maxLength: 3 }),
      "/properties/a/minLength: is above maxLength",
    ],
    ["without a value", field({ enum: [] }), "/properties/a/enum: must be a list of at least one value"],
    ["that nothing matches", field(false), "/properties/a: no value can match"],
    [
      "of a pattern",
      field({ type: "string", pattern: "^(?=x)y$" }),
      "/properties/a/pattern: lookaround is not supported",
    ],
    ["that is not there", field({ $ref: "#/$defs/none" }), "/properties/a/$ref: nothing stands at #/$defs/none"],
  ])("%s", async (_, schema, message) => {
    const reply = await post(drafting, "/v1/chat/completions", { messages: asked("Hi"), ...jsonSchema(schema) });
    expect(reply.status).toBe(400);
    expect(String(reply.at("error", "message"))).toStartWith(message);
    expect(reply.at("error")).toMatchObject({ param: "response_format", code: "invalid_json_schema" });
  });

  test.each([
    ["/v1/responses", { input: "Hi", text: { format: format(UNSUPPORTED) } }],
    [
      "/v1/responses",
      {
        input: "Hi",
        tools: [{ type: "function", name: "f", parameters: UNSUPPORTED, strict: true }],
        tool_choice: "required",
      },
    ],
    [
      "/v1/messages",
      {
        messages: asked("Hi"),
        max_tokens: 9,
        tools: [{ name: "f", input_schema: UNSUPPORTED, strict: true }],
        tool_choice: { type: "any" },
      },
    ],
    [
      "/v1/chat/completions",
      {
        messages: asked("Hi"),
        tools: [{ type: "function", function: { name: "f", parameters: UNSUPPORTED, strict: true } }],
        tool_choice: "required",
      },
    ],
  ] as const)("%s %#", async (path, body) => {
    const reply = await post(drafting, path, body);
    expect(reply.status).toBe(400);
    expect(String(reply.at("error", "message"))).toContain("/properties/a/uniqueItems: 'uniqueItems' is not supported");
    expect(reply.at("error", "type")).toBe("invalid_request_error");
  });

  test("and relaxed by name where it is not strict", async () => {
    const body = { messages: asked("Count."), ...jsonSchema(UNSUPPORTED, false), max_tokens: 4, ...GREEDY };
    const reply = await chat(drafting, body);
    expect(reply.at("x_mlx_dspark", "grammar", "relaxed")).toEqual(["/properties/a/uniqueItems"]);
    expect(reply.content).toStartWith('{"a":');
  });
});

test("a text that no token of the model spells ends its own request, with drafts and without", async () => {
  const body = { messages: asked("What is your name?"), max_tokens: 60, ...GREEDY };
  for (const server of [drafting, baseline]) {
    const [stuck, beside] = await Promise.all([
      // SmolLM2 has no token for U+0013.
      post(server, "/v1/chat/completions", { ...body, regex: "(My name|I am|It is)\\x13[a-z]+" }),
      chat(server, { ...body, ...jsonSchema(schemaOf("verdict")) }),
    ]);
    expect([stuck.status, stuck.at("error", "message")]).toEqual([500, "no legal token"]);
    expect(complaint(schemaOf("verdict"), beside.content)).toBe("");
  }
});

test("nothing else was an error of the servers", async () => {
  for (const server of [drafting, baseline]) {
    const health = (await (await fetch(`${server.url}/health`)).json()) as {
      status: string;
      queue: { running: number };
    };
    expect([health.status, health.queue.running]).toEqual(["ok", 0]);
    expect(server.log()).not.toMatch(/FATAL|grammar engine failed|panic/);
  }
});
