/** From requests to what the engine holds their text to: refusals that name the field, the schema's line, the report. */
import { describe, expect, test } from "bun:test";
import type { GrammarStats, RequestStats } from "../../src/engine/protocol.ts";
import { RequestError } from "../../src/server/errors.ts";
import { thinkingWanted } from "../../src/server/generation/chat-prompt.ts";
import { constraintOf, withFormatLine } from "../../src/server/generation/constraint.ts";
import { prepareJob } from "../../src/server/generation/job.ts";
import { reportBlock } from "../../src/server/generation/report.ts";
import {
  type CallableTool,
  type FormatWish,
  type GenerationRequest,
  NO_REASONING,
  NO_TOOLS,
} from "../../src/server/generation/request.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../src/server/options.ts";
import { thoughtsPlace } from "../../src/text/grammar/facts.ts";
import type { GrammarFacts } from "../../src/text/index.ts";
import { ByteText } from "./byte-text.ts";
import { EOS, SCRIPTED_MODEL } from "./scripted-engine.ts";

const TAGS = { open: "<think>", close: "</think>" };
const FACTS: GrammarFacts = {
  callFamily: "hermes",
  controlId: (text) => ({ "<think>": 7, "</think>": 8, "<tool_call>": 9, "</tool_call>": 10 })[text],
  thoughts: (ids, wanted) => thoughtsPlace(new TextDecoder().decode(Uint8Array.from(ids)), TAGS, wanted),
};
const ids = (text: string) => [...new TextEncoder().encode(text)];

const BASE: GenerationRequest = {
  prompt: { kind: "chat", conversation: { messages: [{ role: "user", content: "hi" }] } },
  promptParam: "messages",
  maxTokens: 10,
  temperature: 0,
  topP: undefined,
  topK: undefined,
  minP: undefined,
  presencePenalty: undefined,
  frequencyPenalty: undefined,
  repetitionPenalty: undefined,
  logitBias: [],
  seed: 1,
  stops: ["stop"],
  n: 1,
  ignoreEos: false,
  topLogprobs: null,
  priority: 0,
  toolPolicy: NO_TOOLS,
  reasoning: NO_REASONING,
  format: null,
  formatParam: "response_format",
};
const SCHEMA = { type: "object", properties: { a: { type: "integer" } }, required: ["a"], additionalProperties: false };
const schemaFormat = (schema: unknown = SCHEMA, strict = true): FormatWish => ({
  kind: "json_schema",
  name: "answer",
  schema,
  strict,
});
const tool = (name: string, strict = false) => ({ name, parameters: SCHEMA, strict });
type Choice = GenerationRequest["toolPolicy"]["choice"];
const policy = (choice: Choice, tools: readonly CallableTool[] = [tool("f"), tool("g")], parallel = true) => ({
  tools,
  choice,
  parallel,
});

function constraint(over: Partial<GenerationRequest>, prompt = "user: hi", facts: GrammarFacts | null = FACTS) {
  const request = { ...BASE, ...over };
  const thinking = thinkingWanted(request, { thinking: undefined });
  return constraintOf(request, facts, ids(prompt), { family: "hermes", thinking });
}

function refusal(over: Partial<GenerationRequest>, facts: GrammarFacts | null = FACTS) {
  try {
    constraint(over, undefined, facts);
  } catch (error) {
    if (error instanceof RequestError)
      return { status: error.status, param: error.param, code: error.code, message: error.message };
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("what turns a grammar on", () => {
  test("a format of any kind", () => {
    const formats: readonly (readonly [FormatWish, string])[] = [
      [{ kind: "json_object" }, "json_object"],
      [schemaFormat(), "json_schema"],
      [{ kind: "grammar", ebnf: 'root ::= "a"' }, "ebnf"],
      [{ kind: "regex", pattern: "a+" }, "regex"],
      [{ kind: "choice", choices: ["a"] }, "choice"],
    ];
    for (const [format, kind] of formats) expect(constraint({ format })?.kind).toBe(kind as "choice");
    expect(constraint({})).toBeNull();
  });

  test("calls that are demanded, strict, or only one", () => {
    const auto: Choice = { kind: "auto" };
    expect(constraint({ toolPolicy: policy(auto) })).toBeNull();
    expect(constraint({ toolPolicy: policy(auto, [tool("f", true)]) })?.kind).toBe("tools");
    expect(constraint({ toolPolicy: policy(auto, [tool("f")], false) })?.kind).toBe("tools");
    expect(constraint({ toolPolicy: policy({ kind: "required" }) })?.kind).toBe("tools");
    const named = constraint({ toolPolicy: policy({ kind: "named", name: "g" }) });
    expect(named?.ebnf).toContain('\\"g\\"');
    expect(named?.ebnf).not.toContain('\\"f\\"');
    expect(named?.markers).toEqual(["<tool_call>", "</tool_call>"]);
  });

  test("nothing where nobody knows how calls are written", () => {
    const required = policy({ kind: "required" });
    const nobody = { family: null, thinking: undefined };
    expect(constraintOf({ ...BASE, toolPolicy: required }, FACTS, ids("x"), nobody)).toBeNull();
    expect(constraint({ toolPolicy: required }, undefined, null)).toBeNull();
  });
});

describe("where it begins", () => {
  const at = (prompt: string, over: Partial<GenerationRequest> = {}) =>
    constraint({ format: { kind: "json_object" }, ...over }, prompt)?.start;

  test("by the prompt's end", () => {
    const after = (inside: boolean) => ({ kind: "after_reasoning" as const, inside, openerId: 7, closerId: 8 });
    expect(at("hi")).toEqual(after(false));
    expect(at("hi<think>\n")).toEqual(after(true));
    expect(at("hi<think>\n\n</think>\n\n")).toEqual({ kind: "at_once" });
  });

  test("at once where no thoughts are wanted, in raw completions and in turns that go on", () => {
    const once = { kind: "at_once" } as const;
    expect(at("hi", { reasoning: { ...NO_REASONING, thinking: false } })).toEqual(once);
    const { conversation } = BASE.prompt.kind === "chat" ? BASE.prompt : { conversation: { messages: [] } };
    const off = { ...conversation, kwargs: { enable_thinking: false } };
    expect(at("hi", { prompt: { kind: "chat", conversation: off } })).toEqual(once);
    expect(at("hi", { prompt: { kind: "chat", conversation, continueFinal: true } })).toEqual(once);
    expect(at("hi", { prompt: { kind: "texts", texts: ["hi"] } })).toEqual(once);
  });
});

describe("refusals", () => {
  test("name the field and the place in the schema", () => {
    expect(refusal({ format: schemaFormat({ type: "nothing" }) })).toEqual({
      status: 400,
      param: "response_format",
      code: "invalid_json_schema",
      message: '/type: unknown type "nothing"',
    });
    expect(refusal({ format: schemaFormat({ not: {} }), formatParam: "text.format" })).toMatchObject({
      param: "text.format",
      message: "/not: 'not' is not supported (in a strict schema)",
    });
    expect(constraint({ format: schemaFormat({ not: {} }, false) })?.relaxed).toEqual(["/not"]);
    expect(refusal({ format: { kind: "grammar", ebnf: "root ::= x" }, formatParam: "grammar" })).toMatchObject({
      param: "grammar",
      code: "invalid_grammar",
    });
    expect(refusal({ format: schemaFormat({ enum: Array.from({ length: 6000 }, String) }) })).toMatchObject({
      param: "response_format",
      message: "schema too large: enum values 6000 > 5000",
    });
    const name = { ...schemaFormat(), name: "no blanks" } as FormatWish;
    expect(refusal({ format: name }).message).toContain("1 to 64 letters");
  });

  test("of tools", () => {
    const strict = [{ name: "f", parameters: { type: "object", properties: { a: { not: {} } } }, strict: true }];
    expect(refusal({ toolPolicy: policy({ kind: "auto" }, strict) })).toMatchObject({
      param: "tools",
      code: "invalid_json_schema",
      message: "tool f: /properties/a/not: 'not' is not supported (in a strict schema)",
    });
    expect(refusal({ toolPolicy: policy({ kind: "named", name: "h" }) })).toMatchObject({
      param: "tool_choice",
      message: "there is no tool 'h'",
    });
    const many = Array.from({ length: 129 }, (_, i) => tool(`t${i}`));
    expect(refusal({ toolPolicy: policy({ kind: "required" }, many) }).message).toBe(
      "schema too large: tools 129 > 128",
    );
  });

  test("of texts without an end, and of models without grammars", () => {
    expect(refusal({ format: { kind: "json_object" }, ignoreEos: true }).param).toBe("ignore_eos");
    expect(refusal({ format: { kind: "json_object" } }, null).message).toContain("not supported with this model");
  });
});

const STATS: RequestStats = {
  mode: "baseline",
  seed: "1",
  promptTokens: 1,
  cachedTokens: 0,
  completionTokens: 1,
  rounds: 0,
  acceptLengths: [],
  drafted: 0,
  accepted: 0,
  lookupRounds: 0,
  parkedRounds: 0,
  targetForwards: 1,
  cap: null,
  acceptance: null,
  decayRatio: null,
  queueSeconds: 0,
  prefillSeconds: 1,
  decodeSeconds: 1,
  ttftSeconds: 1,
};

describe("a job", () => {
  const context = (text: ByteText) => ({
    model: SCRIPTED_MODEL,
    text,
    options: DEFAULT_SERVER_OPTIONS,
    signal: new AbortController().signal,
  });

  class GrammarText extends ByteText {
    override readonly grammarFacts: GrammarFacts = FACTS;
  }

  test("carries the constraint with every row, ends with it alone, and tells the model the schema", async () => {
    const text = new GrammarText();
    const conversation = {
      messages: [
        { role: "system" as const, content: "Be brief." },
        { role: "user" as const, content: "hi" },
      ],
    };
    const format = schemaFormat({ b: 1.5, type: "integer" }, false);
    const request = { ...BASE, format, n: 2, temperature: 1, prompt: { kind: "chat" as const, conversation } };
    const job = await prepareJob(request, context(text));
    expect(job.rows.map(({ request: row }) => row.constraint?.kind)).toEqual(["json_schema", "json_schema"]);
    expect(job.stops).toEqual([]);
    expect(job.rows[0]?.request.eosIds).toEqual([EOS]);
    expect(text.conversations[0]?.messages.map(({ content }) => content)).toEqual([
      "Be brief.",
      'Answer with JSON that matches this schema: {"b":1.5,"type":"integer"}',
      "hi",
    ]);
    const free = await prepareJob(BASE, context(new GrammarText()));
    expect([free.stops, free.rows[0]?.request.constraint]).toEqual([["stop"], undefined]);
  });

  test("tells nothing of schemas where there is none", () => {
    for (const format of [null, { kind: "json_object" } as const]) {
      const request = { ...BASE, format };
      expect(withFormatLine(request)).toBe(request);
    }
  });

  test("reports what the grammar did, of all its rows", async () => {
    const grammar = (over: Partial<GrammarStats>): GrammarStats => ({
      kind: "json_schema",
      compileMs: 12.345,
      cached: false,
      maskedRows: 3,
      cutDrafts: 1,
      forcedTokens: 2,
      maskMs: 0.1,
      relaxed: ["/a"],
      ...over,
    });
    const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 2, reasoningTokens: 0 };
    const choice = (index: number, stats: GrammarStats) => ({
      choice: index,
      completionTokens: 1,
      reasoningTokens: 0,
      stats: { ...STATS, grammar: stats },
    });
    const block = reportBlock("00000000", usage, [
      choice(0, grammar({})),
      choice(1, grammar({ cached: true, maskedRows: 4 })),
    ]);
    expect(block.grammar).toEqual({
      kind: "json_schema",
      compile_ms: 12.3,
      cached: false,
      masked_rows: 7,
      cut_drafts: 2,
      forced_tokens: 4,
      relaxed: ["/a"],
    });
    expect(
      reportBlock("0", usage, [{ choice: 0, completionTokens: 1, reasoningTokens: 0, stats: STATS }]),
    ).not.toHaveProperty("grammar");
  });
});
