/** What an answer's text must be an instance of: forms, limits, and that nothing runs which cannot be held. */
import { describe, expect, test } from "bun:test";
import { checkSchemaLimits } from "../../src/server/dialect/schema-limits.ts";
import { type ChatBody, chatRequest } from "../../src/server/openai/chat-request.ts";
import { completionRequest } from "../../src/server/openai/completion-request.ts";
import { responseRequest } from "../../src/server/responses/request.ts";
import { at, harness } from "./harness.ts";

const HI = [{ role: "user" as const, content: "hi" }];
const SCHEMA = { type: "object", properties: { a: { type: "integer" } } };
const CAP = { maxTokensCap: 100 };

function nested(levels: number): object {
  let schema: object = { type: "string" };
  for (let i = 1; i < levels; i++) schema = { type: "object", properties: { a: schema } };
  return schema;
}

describe("forms", () => {
  const chat = (fields: Partial<ChatBody>) => {
    const { format, formatParam } = chatRequest({ messages: HI, ...fields }, 0).generation;
    return [format, formatParam];
  };

  test("of chat completions", () => {
    expect(chat({ response_format: { type: "text" } })).toEqual([null, "response_format"]);
    expect(chat({ response_format: { type: "json_object" } })).toEqual([{ kind: "json_object" }, "response_format"]);
    expect(
      chat({ response_format: { type: "json_schema", json_schema: { name: "n", schema: SCHEMA, strict: true } } }),
    ).toEqual([{ kind: "json_schema", name: "n", schema: SCHEMA, strict: true }, "response_format"]);
    expect(chat({ grammar: "root ::= [a-z]" })).toEqual([{ kind: "grammar", ebnf: "root ::= [a-z]" }, "grammar"]);
    expect(chat({ regex: "a+" })).toEqual([{ kind: "regex", pattern: "a+" }, "regex"]);
    expect(chat({ choice: ["a", "b"], response_format: { type: "text" } })).toEqual([
      { kind: "choice", choices: ["a", "b"] },
      "choice",
    ]);
  });

  test("of text completions and responses", () => {
    const text = completionRequest({ prompt: "p", regex: "a" }, 0).generation;
    expect(text.format).toEqual({ kind: "regex", pattern: "a" });
    const format = { type: "json_schema" as const, name: "n", schema: SCHEMA };
    const response = responseRequest({ input: "hi", text: { format } }, 0, CAP).generation;
    expect(response.format).toEqual({ kind: "json_schema", name: "n", schema: SCHEMA, strict: false });
    expect(response.formatParam).toBe("text.format");
    expect(responseRequest({ input: "hi", text: { format: null } }, 0, CAP).generation.format).toBeNull();
  });

  test.each([
    ["type", { response_format: { type: "yaml" } }, "response_format.type", /'json_schema', got 'yaml'/],
    ["no schema", { response_format: { type: "json_schema" } }, "response_format.json_schema", /required/],
    [
      "name",
      { response_format: { type: "json_schema", json_schema: { name: "a b", schema: {} } } },
      "response_format.json_schema.name",
      /1 to 64/,
    ],
    [
      "schema a text",
      { response_format: { type: "json_schema", json_schema: { name: "a", schema: "{}" } } },
      "response_format.json_schema.schema",
      /an object/,
    ],
    ["two of them", { regex: "a", choice: ["a"] }, "choice", /cannot be combined with 'regex'/],
    [
      "one and a format",
      { response_format: { type: "json_object" }, grammar: "root ::= x" },
      "grammar",
      /cannot be combined with 'response_format'/,
    ],
    ["endless text", { regex: "a", ignore_eos: true }, "ignore_eos", /cannot be combined with 'regex'/],
    ["no choices", { choice: [] }, "choice", /non-empty list/],
    ["choices of numbers", { choice: [1] }, "choice[0]", /string/],
    ["grammar empty", { grammar: "" }, "grammar", /non-empty/],
    [
      "too deep",
      { response_format: { type: "json_schema", json_schema: { name: "a", schema: nested(25) } } },
      "response_format",
      /schema too large: nesting 25 > 24/,
    ],
  ])("refused: %s", async (_name, body, param, message) => {
    await using h = harness();
    const reply = await h.post("/v1/chat/completions", { messages: HI, ...body });
    const json: unknown = await reply.json();
    expect([reply.status, at(json, "error", "param")]).toEqual([400, param]);
    expect(at(json, "error", "message")).toMatch(message);
    expect(h.engine.requests).toEqual([]);
  });
});

describe("limits", () => {
  test("the largest pass", () => {
    checkSchemaLimits(nested(24), "p");
    checkSchemaLimits({ enum: Array(5000).fill(1) }, "p");
    checkSchemaLimits({ anyOf: [{ properties: properties(1000) }, { properties: properties(1000) }] }, "p");
    checkSchemaLimits(undefined, "p");
    checkSchemaLimits(true, "p");
  });

  test("one more does not", () => {
    expect(() => checkSchemaLimits(nested(25), "p")).toThrow("schema too large: nesting 25 > 24");
    expect(() => checkSchemaLimits({ items: { enum: Array(5001).fill(1) } }, "p")).toThrow("enum values 5001 > 5000");
    const two = { anyOf: [{ properties: properties(1000) }, { $defs: { d: { properties: properties(1001) } } }] };
    expect(() => checkSchemaLimits(two, "p")).toThrow("properties 2001 > 2000");
    expect(() => checkSchemaLimits({ description: "é".repeat(131_072) }, "p")).toThrow("bytes 262162 > 262144");
  });

  test("however deep, it ends", () => {
    const deep: unknown = JSON.parse(`${'{"items":'.repeat(5000)}1${"}".repeat(5000)}`);
    expect(() => checkSchemaLimits(deep, "p")).toThrow("nesting 25 > 24");
    expect(() => checkSchemaLimits({ const: deep }, "p")).toThrow("nesting 25 > 24");
  });
});

function properties(count: number): object {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, true]));
}
