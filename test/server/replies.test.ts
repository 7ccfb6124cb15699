/** From a request to its events over the scripted engine: thoughts, calls, end reasons, thinking, demanded calls. */
import { describe, expect, test } from "bun:test";
import { Admission } from "../../src/server/generation/admission.ts";
import { ChoiceCollector, type ChoiceEvent, type ChoiceResult } from "../../src/server/generation/events.ts";
import { prepareJob } from "../../src/server/generation/job.ts";
import { withLateThoughts } from "../../src/server/generation/late-thoughts.ts";
import {
  type GenerationRequest,
  NO_REASONING,
  NO_TOOLS,
  type PromptSource,
  type ReasoningWish,
  type ToolPolicy,
} from "../../src/server/generation/request.ts";
import { runJob } from "../../src/server/generation/run.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "../../src/server/options.ts";
import { ByteText } from "./byte-text.ts";
import { SCRIPTED_MODEL, type Script, ScriptedEngine, writes } from "./scripted-engine.ts";

const CHAT: Extract<PromptSource, { kind: "chat" }> = {
  kind: "chat",
  conversation: { messages: [{ role: "user", content: "hi" }], tools: [{ name: "f" }, { name: "g" }] },
};
const SPLIT: ReasoningWish = { ...NO_REASONING, split: true };
const TOOLS: ToolPolicy = { ...NO_TOOLS, tools: [{ name: "f", strict: false }] };
const CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>';

function request(over: Partial<GenerationRequest> = {}): GenerationRequest {
  const unset = { temperature: 0, topP: undefined, topK: undefined, minP: undefined, seed: undefined };
  const penalties = { presencePenalty: undefined, frequencyPenalty: undefined, repetitionPenalty: undefined };
  return {
    ...unset,
    ...penalties,
    prompt: CHAT,
    promptParam: "messages",
    maxTokens: undefined,
    logitBias: [],
    stops: [],
    n: 1,
    ignoreEos: false,
    topLogprobs: null,
    priority: 0,
    toolPolicy: TOOLS,
    reasoning: SPLIT,
    format: null,
    formatParam: "response_format",
    ...over,
  };
}

interface Outcome {
  readonly events: readonly ChoiceEvent[];
  readonly results: readonly ChoiceResult[];
  readonly engine: ScriptedEngine;
  readonly text: ByteText;
}

async function answer(
  script: string | Script,
  over: Partial<GenerationRequest> = {},
  { text = new ByteText(), options = {} }: { text?: ByteText; options?: Partial<ServerOptions> } = {},
): Promise<Outcome> {
  const engine = new ScriptedEngine(() => (typeof script === "string" ? writes(script) : script));
  const { signal } = new AbortController();
  const all = { ...DEFAULT_SERVER_OPTIONS, ...options };
  const job = await prepareJob(request(over), { model: SCRIPTED_MODEL, text, options: all, signal });
  const ticket = new Admission(4, 4).enter(job.rows.length);
  const events: ChoiceEvent[] = [];
  const collector = new ChoiceCollector();
  for await (const event of runJob(job, { engine, text, ticket, signal })) {
    events.push(event);
    collector.push(event);
  }
  return { events, results: collector.results(), engine, text };
}

async function result(...given: Parameters<typeof answer>): Promise<ChoiceResult> {
  const [first] = (await answer(...given)).results;
  if (first === undefined) throw new Error("no choice has ended");
  return first;
}

describe("events", () => {
  test("thoughts, text and calls, each with its tokens", async () => {
    const whole = `<think>hm</think>Hi.\n${CALL}${CALL}`;
    const { events, results } = await answer(whole);
    const kinds = events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
    expect(kinds).toEqual(["reasoning", "text", "call", "end"]);
    const [only] = results;
    expect(only).toMatchObject({
      text: "Hi.",
      reasoning: "hm",
      reason: "tool_calls",
      completionTokens: whole.length + 1,
      reasoningTokens: 2,
      calls: [
        { index: 0, name: "f", arguments: '{"a":1}' },
        { index: 1, name: "f", arguments: '{"a":1}' },
      ],
    });
    expect(only?.tokens).toHaveLength(whole.length + 1);
  });

  test("greedy choices share calls and thoughts", async () => {
    const { results, engine } = await answer(`<think>hm</think>${CALL}`, { n: 2 });
    expect(engine.requests).toHaveLength(1);
    expect(results.map(({ calls, reasoning }) => [calls.length, reasoning])).toEqual([
      [1, "hm"],
      [1, "hm"],
    ]);
  });

  test("without tools markup is text; without a split thoughts are", async () => {
    expect(await result(CALL, { toolPolicy: NO_TOOLS })).toMatchObject({ text: CALL, calls: [], reason: "stop" });
    const kept = await result("<think>a</think>b", { reasoning: NO_REASONING });
    expect(kept).toMatchObject({ text: "<think>a</think>b", reasoning: "", reasoningTokens: 0 });
    const prompt = { kind: "texts", texts: ["p"] } as const;
    const raw = await result(`<think>a</think>${CALL}`, { prompt, toolPolicy: NO_TOOLS, reasoning: NO_REASONING });
    expect(raw.text).toBe(`<think>a</think>${CALL}`);
  });

  test("the prompt's end says that the thoughts have begun", async () => {
    const text = new ByteText();
    text.generationPrompt = "<think>\n";
    expect(await result("a</think>b", {}, { text })).toMatchObject({ reasoning: "a", text: "b" });
    expect(await result("a</think>b")).toMatchObject({ reasoning: "", text: "a</think>b" });
  });

  test("the server's word on the format wins over the template's", async () => {
    const gemma = "<|tool_call>call:f{a:1}<tool_call|>";
    expect((await result(gemma, {}, { options: { toolFormat: "gemma4" } })).calls).toHaveLength(1);
    expect((await result(gemma)).text).toBe(gemma);
    expect((await result(CALL, {}, { options: { toolFormat: "none" } })).text).toBe(CALL);
  });
});

test("a whole answer with a closer alone was thoughts up to there", async () => {
  const form = {
    reasoning: new ByteText().reasoningForm,
    start: "outside",
    family: null,
    tools: [],
    begun: "",
  } as const;
  const late = withLateThoughts(await result(`é hm\n</think>\n\nb </think>${CALL}`), form);
  expect(late).toMatchObject({ reasoning: "é hm", text: "b </think>", calls: [{ name: "f" }] });
  expect(late.reasoningTokens).toBe(new TextEncoder().encode("é hm\n").length);
  for (const text of ["a <think>b</think>c", "<think>a</think>b</think>c", "plain"]) {
    const told = await result(text);
    expect(withLateThoughts(told, form)).toBe(told);
  }
  const closer = await result("a</think>b");
  expect(withLateThoughts(closer, { ...form, start: "answer" })).toBe(closer);
  expect(withLateThoughts(closer, { ...form, reasoning: null })).toBe(closer);
});

describe("how it ends", () => {
  test("cut inside a call: no call, the text before it, length", async () => {
    const cut = await result(`a ${CALL}`, { maxTokens: 30 });
    expect(cut).toMatchObject({ text: "a", calls: [], reason: "length", completionTokens: 30 });
    const second = await result(CALL + CALL, { maxTokens: CALL.length + 30 });
    expect(second).toMatchObject({ reason: "length", calls: [{ name: "f" }] });
  });

  test("cut behind a whole call: the call counts", async () => {
    const cut = await result(CALL, { maxTokens: CALL.length - 3 });
    expect(cut).toMatchObject({ reason: "tool_calls", calls: [{ name: "f" }] });
    expect(await result(`${CALL}and so on`, { maxTokens: CALL.length + 3 })).toMatchObject({ reason: "tool_calls" });
  });

  test("cut inside thoughts: they are thoughts, length", async () => {
    const cut = await result("<think>one two", { maxTokens: 10 });
    expect(cut).toMatchObject({ reasoning: "one", text: "", reason: "length", reasoningTokens: 3 });
  });

  test("one call is wanted: the row is cancelled behind it", async () => {
    const { results, engine } = await answer(writes(`a${CALL}${CALL}`, { perStep: 7 }), {
      toolPolicy: { ...TOOLS, parallel: false },
    });
    expect(results).toMatchObject([
      { text: "a", calls: [{ name: "f" }], reason: "tool_calls", stopString: null, completionTokens: CALL.length + 1 },
    ]);
    expect(engine.cancelled).toHaveLength(1);
  });

  test("a stop string in the answer, not in thoughts or calls", async () => {
    const stopped = await result("<think>END</think>x END y", { stops: ["END"] });
    expect(stopped).toMatchObject({ text: "x ", reasoning: "END", reason: "stop", stopString: "END" });
    const called = await result(`${CALL} and END`, { stops: ["END"] });
    expect(called).toMatchObject({ reason: "tool_calls", stopString: "END", text: "and " });
  });
});

describe("thinking", () => {
  const rendered = async (over: Partial<GenerationRequest>, options: Partial<ServerOptions> = {}) =>
    (await answer("x", over, { options })).text.rendered[0];
  const wish = (over: Partial<ReasoningWish>) => ({ reasoning: { ...SPLIT, ...over } });
  const kwargs = (given: Record<string, unknown>) => ({
    prompt: { ...CHAT, conversation: { ...CHAT.conversation, kwargs: given } },
  });

  test("nobody says anything: nothing is passed", async () => {
    expect(await rendered({})).toEqual({ callFamily: "hermes" });
  });

  test("the request, then the template arguments, then the server", async () => {
    const off = { thinking: false } as const;
    expect(await rendered({}, off)).toMatchObject({ enableThinking: false });
    expect(await rendered(wish({ thinking: true }), off)).toMatchObject({ enableThinking: true });
    expect(await rendered(kwargs({ enable_thinking: true }), off)).not.toHaveProperty("enableThinking");
    const both = { ...wish({ thinking: false }), ...kwargs({ enable_thinking: true }) };
    expect(await rendered(both)).toMatchObject({ enableThinking: false });
  });

  test("the same for the effort, which goes with thinking only", async () => {
    const low = { reasoningEffort: "low" } as const;
    expect(await rendered({}, low)).toMatchObject({ reasoningEffort: "low" });
    expect(await rendered(wish({ effort: "high" }), low)).toMatchObject({ reasoningEffort: "high" });
    expect(await rendered(kwargs({ reasoning_effort: "max" }), low)).not.toHaveProperty("reasoningEffort");
    expect(await rendered(wish({ thinking: false, effort: "high" }))).not.toHaveProperty("reasoningEffort");
  });

  test("an answer that goes on begins as an answer", async () => {
    const prompt = { ...CHAT, continueFinal: true };
    const { text, results } = await answer(" <think>a</think>b", { prompt });
    expect(text.rendered[0]).toMatchObject({ continueFinal: true });
    expect(results).toMatchObject([{ text: " <think>a</think>b", reasoning: "" }]);
    const thinking = new ByteText();
    thinking.generationPrompt = "<think>";
    expect(await result("a</think>b", { prompt }, { text: thinking })).toMatchObject({ reasoning: "a", text: "b" });
  });
});

describe("demanded calls without a grammar", () => {
  const demand = (choice: ToolPolicy["choice"]) => ({ toolPolicy: { ...TOOLS, choice } });

  test("a certain tool: the turn begins with its call, and has no thoughts", async () => {
    const { text, results } = await answer('{"a": 2}}\n</tool_call>', demand({ kind: "named", name: "g" }));
    expect(text.rendered[0]).toMatchObject({ openCallOf: 1, enableThinking: false, callFamily: "hermes" });
    expect(text.conversations[0]?.messages).toEqual(CHAT.conversation.messages);
    expect(results).toMatchObject([{ text: "", reason: "tool_calls", calls: [{ name: "g", arguments: '{"a":2}' }] }]);
  });

  test("any tool: the system text says so; a turn without a call is what it is", async () => {
    const prompt = {
      ...CHAT,
      conversation: {
        ...CHAT.conversation,
        messages: [{ role: "developer" as const, content: "S" }, ...CHAT.conversation.messages],
      },
    };
    const { text, results } = await answer("no", { prompt, ...demand({ kind: "required" }) });
    expect(text.conversations[0]?.messages.map(({ role, content }) => [role, content])).toEqual([
      ["developer", "S"],
      ["system", "You must call one of the tools."],
      ["user", "hi"],
    ]);
    expect(results).toMatchObject([{ text: "no", reason: "stop" }]);
  });

  test("a certain tool of a model whose calls nobody can read", async () => {
    const named = demand({ kind: "named", name: "g" });
    const { text } = await answer("no", named, { options: { toolFormat: "none" } });
    expect(text.conversations[0]?.messages[0]?.content).toBe("You must call the tool g.");
  });
});

describe("demanded calls that a grammar holds", () => {
  const tools = [
    { name: "f", description: "F", parameters: { type: "object" }, strict: false },
    { name: "g", strict: false },
  ];
  const demanded: Partial<GenerationRequest> = { toolPolicy: { ...NO_TOOLS, tools, choice: { kind: "required" } } };
  const held = (over: Partial<ByteText> = {}) =>
    Object.assign(new ByteText(), {
      grammarFacts: { callFamily: null, thoughts: () => ({ kind: "none" }), controlId: () => undefined },
      ...over,
    });
  const first = ({ text }: Outcome) => text.conversations[0];

  test("a model that is shown its tools and knows how to call needs no word more", async () => {
    const outcome = await answer(CALL, demanded, { text: held() });
    expect(first(outcome)?.messages).toEqual(CHAT.conversation.messages);
    expect(first(outcome)?.tools).toEqual(CHAT.conversation.tools);
    expect(outcome.engine.requests[0]?.constraint?.kind).toBe("tools");
  });

  test("a model without a syntax of its own is held to a common one, and told of it and of the tools", async () => {
    const text = held({ toolFormat: null, rendersTools: false });
    const outcome = await answer(CALL, demanded, { text });
    expect(outcome.engine.requests[0]?.constraint?.ebnf).toContain("tool_call");
    expect(outcome.results).toMatchObject([{ text: "", reason: "tool_calls", calls: [{ name: "f" }] }]);
    const [system, user] = first(outcome)?.messages ?? [];
    expect(user).toEqual({ role: "user", content: "hi" });
    expect(system?.content).toContain('{"name":"f","description":"F","parameters":{"type":"object"}}\n{"name":"g"}');
    expect(system?.content).toContain('<tool_call>\n{"name":');
    expect(first(outcome)?.tools).toBeUndefined();
  });

  test("it is not told of tools that its template shows", async () => {
    const outcome = await answer(CALL, demanded, { text: held({ toolFormat: null }) });
    expect(first(outcome)?.messages[0]?.content).not.toContain('"name":"f"');
    expect(first(outcome)?.messages[0]?.content).toContain("<tool_call>");
    expect(first(outcome)?.tools).toEqual(CHAT.conversation.tools);
  });

  test("cut in an opener: a call that was begun, not text", async () => {
    for (const cut of [1, 5, CALL.length + 4]) {
      const outcome = await answer(CALL + CALL, { ...demanded, maxTokens: cut }, { text: held() });
      expect(outcome.results).toMatchObject([{ text: "", reason: "length", calls: cut > 5 ? [{}] : [] }]);
    }
    // Where no call was demanded it may have been the text's own.
    expect(await result(CALL, { maxTokens: 5 })).toMatchObject({ text: CALL.slice(0, 5), reason: "length" });
  });

  test("stop strings hold where the text is free, and nowhere else", async () => {
    const policy = (over: Partial<ToolPolicy>) => ({ toolPolicy: { ...NO_TOOLS, tools, ...over } });
    const run = (over: Partial<GenerationRequest>) => answer("a END b", { stops: ["END"], ...over }, { text: held() });
    for (const free of [policy({ parallel: false }), policy({ tools: tools.map((t) => ({ ...t, strict: true })) })]) {
      const outcome = await run(free);
      expect(outcome.engine.requests[0]?.constraint?.kind).toBe("tools");
      expect(outcome.results).toMatchObject([{ text: "a ", reason: "stop", stopString: "END" }]);
    }
    const format = { kind: "regex", pattern: ".*" } as const;
    for (const bound of [demanded, { format }, { format, ...policy({}) }]) {
      expect((await run(bound)).results).toMatchObject([{ text: "a END b", stopString: null }]);
    }
  });

  test("where nothing is demanded, its text is text", async () => {
    const text = held({ toolFormat: null, rendersTools: false });
    const outcome = await answer(CALL, {}, { text });
    expect(outcome.results).toMatchObject([{ text: CALL, calls: [], reason: "stop" }]);
    expect(outcome.engine.requests[0]?.constraint).toBeUndefined();
    expect(first(outcome)?.messages).toEqual(CHAT.conversation.messages);
  });

  test("calls that are switched off stay off", async () => {
    const outcome = await answer(CALL, demanded, { text: held(), options: { toolFormat: "none" } });
    expect(outcome.engine.requests[0]?.constraint).toBeUndefined();
    expect(outcome.results).toMatchObject([{ text: CALL, calls: [] }]);
  });
});
