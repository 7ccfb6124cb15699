/** Body → internal form, field by field (http-anthropic.md §1, §4). */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { messagesRequest } from "../../../src/server/anthropic/request.ts";
import { type MessagesBody, messagesBodySchema } from "../../../src/server/anthropic/schema.ts";
import { bodyChecker } from "../../../src/server/dialect/validation.ts";
import { RequestError } from "../../../src/server/errors.ts";
import { at } from "../harness.ts";
import { anyContent } from "./arbitrary.ts";

const HI = [{ role: "user", content: "hi" }];
const OPTIONS = { keepBillingHeader: false };
const SCHEMA = { type: "object", properties: { city: { type: "string" } } };
const WEATHER = { name: "weather", description: "Of a city", input_schema: SCHEMA };

const request = (fields: Partial<MessagesBody>, priority: 0 | 1 = 0) =>
  messagesRequest({ messages: HI, ...fields }, priority, OPTIONS);
const generation = (fields: Partial<MessagesBody>) => request(fields).generation;

test("sampling, limits and delivery", () => {
  const { generation: asked, delivery } = request(
    {
      model: "m",
      max_tokens: 32_000,
      temperature: 0.5,
      top_p: 0.9,
      top_k: 4,
      stop_sequences: ["", "END"],
      stream: true,
    },
    1,
  );
  expect(asked).toMatchObject({
    promptParam: "messages",
    maxTokens: 32_000,
    temperature: 0.5,
    topP: 0.9,
    topK: 4,
    stops: ["END"],
    n: 1,
    priority: 1,
    topLogprobs: null,
    format: null,
  });
  expect(delivery).toEqual({ model: "m", stream: true, showThinking: true, maxTokens: 32_000 });
  expect(request({}).delivery).toEqual({ model: null, stream: false, showThinking: true, maxTokens: undefined });
  expect(generation({}).temperature).toBeUndefined();
});

describe("tools", () => {
  const policy = (fields: Partial<MessagesBody>) => generation({ tools: [WEATHER], ...fields }).toolPolicy;

  test("input_schema becomes parameters; what only the service has is left out", () => {
    const asked = generation({
      tools: [
        { ...WEATHER, ...{ cache_control: { type: "ephemeral" }, eager_input_streaming: true } },
        { type: "custom", name: "clock", strict: true },
        { type: "web_search_20250305", name: "web_search" },
        { type: "computer_20250124", name: "mine", input_schema: SCHEMA },
        { name: "DeferredToolPlaceholder", input_schema: SCHEMA, defer_loading: true },
        { description: "nameless" },
        { name: "" },
      ],
    });
    expect(asked.toolPolicy).toEqual({
      tools: [
        { name: "weather", description: "Of a city", parameters: SCHEMA, strict: false },
        { name: "clock", strict: true },
        { name: "mine", parameters: SCHEMA, strict: false },
      ],
      choice: { kind: "auto" },
      parallel: true,
    });
    expect(at(asked.prompt, "conversation", "tools")).toEqual([
      { name: "weather", description: "Of a city", parameters: SCHEMA },
      { name: "clock" },
      { name: "mine", parameters: SCHEMA },
    ]);
  });

  test("choices", () => {
    expect(policy({ tool_choice: { type: "any" } }).choice).toEqual({ kind: "required" });
    expect(policy({ tool_choice: { type: "tool", name: "weather" } }).choice).toEqual({
      kind: "named",
      name: "weather",
    });
    expect(policy({ tool_choice: { type: "auto", disable_parallel_tool_use: true } })).toMatchObject({
      choice: { kind: "auto" },
      parallel: false,
    });
    expect(policy({ tool_choice: { type: "something_new" } }).choice).toEqual({ kind: "auto" });
    const none = generation({ tools: [WEATHER], tool_choice: { type: "none" } });
    expect(none.toolPolicy.tools).toEqual([]);
    expect(at(none.prompt, "conversation", "tools")).toBeUndefined();
  });

  test("a choice that cannot be made is refused", () => {
    expect(() => policy({ tool_choice: { type: "tool", name: "x" } })).toThrow(/'x', which is not in 'tools'/);
    expect(() => policy({ tool_choice: { type: "tool" } })).toThrow(/'tool_choice\.name' is required/);
    expect(() => generation({ tool_choice: { type: "any" } })).toThrow(/needs 'tools'/);
  });
});

test("thinking and effort: only 'disabled' and known efforts say something", () => {
  const wish = (fields: Partial<MessagesBody>) => {
    const { generation: asked, delivery } = request(fields);
    return [asked.reasoning.thinking, asked.reasoning.effort, delivery.showThinking];
  };
  expect(wish({})).toEqual([undefined, undefined, true]);
  expect(generation({}).reasoning.split).toBe(true);
  expect(wish({ thinking: { type: "disabled" } })).toEqual([false, undefined, false]);
  for (const type of ["enabled", "adaptive", "someday", 5, undefined]) {
    expect(wish({ thinking: { type } })).toEqual([undefined, undefined, true]);
  }
  const efforts = ["low", "medium", "high", "xhigh", "max"].map((effort) => wish({ output_config: { effort } })[1]);
  expect(efforts.join(" ")).toBe("low medium high xhigh xhigh");
  for (const effort of ["mega", "", 3, null]) expect(wish({ output_config: { effort } })[1]).toBeUndefined();
  expect(wish({ output_config: { effort: "none" } })).toEqual([false, undefined, false]);
  expect(wish({ thinking: { type: "disabled" }, output_config: { effort: "high" } })[1]).toBeUndefined();
});

test("a JSON schema for the answer", () => {
  expect(generation({ output_config: { format: { type: "json_schema", schema: SCHEMA } } })).toMatchObject({
    format: { kind: "json_schema", schema: SCHEMA, strict: false },
    formatParam: "output_config.format",
  });
  for (const format of [null, { type: "text" }, {}]) {
    expect(generation({ output_config: { format } }).format).toBeNull();
  }
  expect(() => generation({ output_config: { format: { type: "json_schema" } } })).toThrow(/schema' is required/);
});

describe("schema", () => {
  const check = bodyChecker(messagesBodySchema);

  test("what nobody knows yet is ignored", () => {
    const later = {
      ...{ messages: [{ role: "user", content: [{ type: "text", text: "x", citations: [1] }], mood: "good" }] },
      ...{ metadata: 5, context_management: [], safeguards: {}, service_tier: "x", speed: 1, container: {} },
      ...{ mcp_servers: [{}], diagnostics: true, cache_control: "y", betas: [], anything: { else: 1 } },
      ...{ thinking: { type: "adaptive", display: "omitted", budget_tokens: "many" }, output_config: { later: 1 } },
      tools: [{ name: "f", input_schema: {}, input_examples: [1], new_field: {} }],
    };
    expect(check(later)).toBe(later);
  });

  test.each([
    [{}, "messages", "'messages': must be a non-empty array"],
    [{ messages: [] }, "messages", "'messages': must be a non-empty array"],
    [{ messages: "hi" }, "messages", "'messages': must be a non-empty array"],
    [{ messages: ["hi"] }, "messages[0]", "'messages[0]' must be an object, got 'hi'"],
    [{ messages: [{ content: "x" }] }, "messages[0].role", "'messages[0].role' is required"],
    [{ messages: HI, max_tokens: 0 }, "max_tokens", "'max_tokens' must be an integer not below 1, got 0"],
    [{ messages: HI, temperature: "hot" }, "temperature", "'temperature' must be a number between 0 and 2, got 'hot'"],
    [{ messages: HI, system: 5 }, "system", "'system' must be a string or a list of content blocks, got 5"],
    [{ messages: HI, tools: {} }, "tools", "'tools' must be a list"],
  ])("%j is refused by name", (body, param, message) => {
    try {
      check(body);
      throw new Error("accepted");
    } catch (error) {
      expect(error).toBeInstanceOf(RequestError);
      expect([at(error, "param"), at(error, "message")]).toEqual([param, message]);
    }
  });

  test("no value of a known field makes more than a 400", () => {
    const fields = [
      "messages",
      "system",
      "tools",
      "tool_choice",
      "thinking",
      "output_config",
      "stop_sequences",
      "stream",
    ];
    const value = fc.oneof(
      fc.jsonValue({ maxDepth: 2 }),
      fc.array(fc.record({ role: fc.constantFrom("user", "assistant", "system", "x"), content: anyContent() })),
      fc.array(
        fc.record({
          name: fc.jsonValue({ maxDepth: 2 }),
          input_schema: fc.jsonValue({ maxDepth: 2 }),
          type: fc.jsonValue({ maxDepth: 2 }),
        }),
      ),
    );
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...fields), value), (body) => {
        try {
          const given = Object.fromEntries(Object.entries({ messages: HI, ...body }).filter(([, v]) => v !== null));
          const checked: unknown = check(given);
          messagesRequest(checked as MessagesBody, 0, OPTIONS);
        } catch (error) {
          expect(at(error, "status")).toBe(400);
        }
      }),
      { numRuns: 200 },
    );
  }, 30_000);
});
