/** Every row of the table in text.md §4, and the strings that the guard must see. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { ChatTemplate } from "../../../src/text/chat/chat-template.ts";
import { effortOf, nearestEffort } from "../../../src/text/chat/effort.ts";
import { type Conversation, mapConversationStrings } from "../../../src/text/chat/messages.ts";
import { type LooseMessage, splitThoughts } from "../../../src/text/chat/normalize.ts";
import { JsonNumber } from "../../../src/text/json-numbers.ts";
import { DATED, HERMES, SMOLLM2, XML } from "./templates.ts";

const TOKENS = { bos: null, eos: null, pad: null, unk: null, additional: [] };
const hermes = new ChatTemplate(new Map([["default", HERMES]]), TOKENS);
const xml = new ChatTemplate(new Map([["default", XML]]), TOKENS);
const dated = new ChatTemplate(new Map([["default", DATED]]), TOKENS);
const smollm2 = new ChatTemplate(new Map([["default", SMOLLM2]]), TOKENS);

function normal(messages: readonly LooseMessage[], template = hermes): Conversation["messages"] {
  return template.normalize({ messages }).messages;
}

const argumentsOf = (given: string | object | null, template = hermes) => {
  const [message] = normal([{ role: "assistant", toolCalls: [{ name: "f", arguments: given }] }], template);
  return message?.role === "assistant" ? message.toolCalls?.[0]?.arguments : undefined;
};

test("row 2: developer is system, head pieces are joined, later ones are reminders", () => {
  expect(
    normal([
      { role: "developer", content: "A" },
      { role: "system", content: "B" },
      { role: "user", content: "u1" },
      { role: "system", content: "C" },
      { role: "assistant", content: "a1" },
      { role: "user", content: "u2" },
      { role: "system", content: "D" },
      { role: "assistant", content: "a2" },
      { role: "system", content: "E" },
      { role: "user", content: "u3" },
      { role: "assistant", content: "a3" },
      { role: "system", content: "F" },
    ]),
  ).toEqual([
    { role: "system", content: "A\n\nB\n\nC" },
    { role: "user", content: "u1" },
    { role: "assistant", content: "a1" },
    { role: "user", content: "u2\n\n<system-reminder>\nD\n</system-reminder>" },
    { role: "assistant", content: "a2" },
    { role: "user", content: "<system-reminder>\nE\n</system-reminder>\n\nu3" },
    { role: "assistant", content: "a3" },
    { role: "user", content: "<system-reminder>\nF\n</system-reminder>" },
  ]);
});

test("row 3: content becomes text", () => {
  expect(
    normal([
      { role: "user", content: [{ type: "text", text: "a" }, "b"] },
      { role: "assistant", content: null },
      { role: "user" },
    ]).map(({ content }) => content),
  ).toEqual(["a\nb", "", ""]);
});

test("row 4: neighbours are joined unless the template joins them itself; text and calls share a turn", () => {
  const neighbours: readonly LooseMessage[] = [
    { role: "user", content: "a" },
    { role: "user", content: "b" },
    { role: "assistant", content: "c", reasoning: "r" },
    { role: "assistant", content: "d" },
  ];
  expect(normal(neighbours)).toEqual([
    { role: "user", content: "a\n\nb" },
    { role: "assistant", content: "c\n\nd", reasoning: "r" },
  ]);
  expect(normal(neighbours, dated)).toHaveLength(4);
  const split: readonly LooseMessage[] = [
    { role: "assistant", content: "text" },
    { role: "assistant", toolCalls: [{ id: "1", name: "f", arguments: "{}" }] },
  ];
  expect(normal(split, dated)).toEqual([
    { role: "assistant", content: "text", toolCalls: [{ id: "1", name: "f", arguments: {} }] },
  ]);
});

test("row 5: arguments become an object where nothing is lost by it", () => {
  expect(argumentsOf('{"b":1.0,"a":{"c":[true]}}')).toEqual({
    b: new JsonNumber("1.0"),
    a: { c: [true] },
  });
  expect(Object.keys(argumentsOf('{"b":1,"a":2}') ?? {})).toEqual(["b", "a"]);
  expect(argumentsOf({ already: 1 })).toEqual({ already: 1 });
  expect(argumentsOf("")).toEqual({});
  expect(argumentsOf(null)).toEqual({});
  for (const kept of ["{broken", '{"n":9007199254740993}', '{"a":1,"a":2}', "[1]", '"text"', "7", "null"]) {
    expect(argumentsOf(kept)).toBe(kept);
    expect(argumentsOf(kept, xml)).toEqual({ arguments: kept });
  }
  expect(argumentsOf('{"n":9007199254740991}')).toEqual({ n: new JsonNumber("9007199254740991") });
  const [message] = normal([
    { role: "assistant", toolCalls: [{ name: "f" }, { id: "", name: "g" }, { id: "x", name: "h" }] },
  ]);
  expect(message?.role === "assistant" && message.toolCalls?.map(({ id }) => id)).toEqual(["call_0", "call_1", "x"]);
});

test("row 6: thoughts inside the content are taken out", () => {
  const tags = { open: "<think>", close: "</think>" };
  expect(splitThoughts(" \n<think>\nwhy\n\n</think>\n\nanswer ", tags)).toEqual({ thoughts: "why", answer: "answer " });
  expect(splitThoughts("why\n</think>\n\nanswer", tags)).toEqual({ thoughts: "why", answer: "answer" });
  expect(splitThoughts("<think>a<think>\nb</think>c", tags)).toEqual({ thoughts: "b", answer: "c" });
  for (const untouched of ["text <think>x</think> y", "<think>open", "plain", ""]) {
    expect(splitThoughts(untouched, tags)).toEqual({ thoughts: "", answer: untouched });
  }
  expect(normal([{ role: "assistant", content: "<think>b</think>c", reasoning: "a" }])).toEqual([
    { role: "assistant", content: "c", reasoning: "a\n\nb" },
  ]);
  expect(normal([{ role: "user", content: "<think>b</think>c" }])).toEqual([
    { role: "user", content: "<think>b</think>c" },
  ]);
});

test("row 7: thoughts are offered under both names", () => {
  const both = new ChatTemplate(
    new Map([["default", "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}{% endfor %}"]]),
    TOKENS,
  );
  expect(both.render({ messages: [{ role: "assistant", content: "", reasoning: "r" }] })).toBe("r|r");
});

test("row 8: results are text, and named after their call", () => {
  expect(
    normal([
      { role: "assistant", toolCalls: [{ id: "1", name: "f", arguments: "{}" }] },
      { role: "tool", toolCallId: "1", content: { a: new JsonNumber("1.0"), b: "é" } },
      { role: "tool", toolCallId: "1", content: " kept ", name: "own" },
      { role: "tool", toolCallId: "other", content: "stays" },
    ]).slice(1),
  ).toEqual([
    { role: "tool", toolCallId: "1", content: '{"a":1.0,"b":"é"}', name: "f" },
    { role: "tool", toolCallId: "1", content: " kept ", name: "own" },
    { role: "tool", toolCallId: "other", content: "stays" },
  ]);
});

test("row 10: no user turn is allowed unless the template throws", () => {
  expect(smollm2.render(smollm2.normalize({ messages: [{ role: "system", content: "S" }] }))).toContain("S<|im_end|>");
  expect(() => xml.render(xml.normalize({ messages: [] }))).toThrow("No messages provided.");
});

test("no tools are as good as none", () => {
  expect(hermes.normalize({ messages: [], tools: [], kwargs: { a: 1 } })).toEqual({ messages: [], kwargs: { a: 1 } });
});

test("every string of the caller's is mapped, once, and nothing else", () => {
  const conversation: Conversation = {
    messages: [
      { role: "system", content: "s" },
      { role: "user", content: "u", name: "n" },
      {
        role: "assistant",
        content: "a",
        reasoning: "r",
        toolCalls: [
          { id: "i", name: "f", arguments: { k: ["v", { k2: new JsonNumber("1.0"), k3: null }] } },
          { id: "j", name: "g", arguments: "raw" },
          { id: "l", name: "h", arguments: new Map([["0", "m"]]) },
        ],
      },
      { role: "tool", content: "t", toolCallId: "i", name: "f" },
    ],
    tools: [{ name: "f", description: "d", parameters: { type: "object", required: ["k"] } }],
    kwargs: { free: "w", deep: { x: "y" }, enable_thinking: true, reasoning_effort: "low" },
  };
  const seen: string[] = [];
  const mapped = mapConversationStrings(conversation, (text) => {
    seen.push(text);
    return `<${text}>`;
  });
  expect(seen.sort()).toEqual(
    [
      ...["s", "u", "n", "a", "r", "i", "f", "k", "v", "k2", "k3", "j", "g", "raw", "l", "h", "0", "m", "t", "i", "f"],
      ...["f", "d", "type", "object", "required", "k", "w", "x", "y"],
    ].sort(),
  );
  expect(mapped.messages.map(({ role }) => role)).toEqual(["system", "user", "assistant", "tool"]);
  expect(mapped.kwargs).toEqual({
    free: "<w>",
    deep: { "<x>": "<y>" },
    enable_thinking: true,
    reasoning_effort: "low",
  });
  expect(mapConversationStrings(conversation, (text) => text)).toEqual(conversation);
});

test("the nearest effort, ties to the lower", () => {
  expect(nearestEffort("high", ["low", "medium", "xhigh"])).toBe("medium");
  expect(nearestEffort("xhigh", ["low", "high"])).toBe("high");
  expect(nearestEffort("medium", ["xhigh", "low"])).toBe("low");
  expect(nearestEffort("low", [])).toBeNull();
  expect([effortOf("minimal"), effortOf("max"), effortOf("none"), effortOf("toString")]).toEqual([
    "low",
    "xhigh",
    "none",
    null,
  ]);
});

test("any conversation is normalised to one that is already normal", () => {
  const text = fc.oneof(fc.string({ maxLength: 12 }), fc.constantFrom("<think>a</think>b", "x</think>", '{"a":1}', ""));
  const call = fc.record({ id: fc.constantFrom("1", "2"), name: fc.constantFrom("f", "g"), arguments: text });
  const message: fc.Arbitrary<LooseMessage> = fc.oneof(
    fc.record({ role: fc.constantFrom("system", "developer", "user"), content: text }),
    fc.record({ role: fc.constant("assistant" as const), content: text, toolCalls: fc.array(call, { maxLength: 2 }) }),
    fc.record({ role: fc.constant("tool" as const), content: text, toolCallId: fc.constantFrom("1", "3") }),
  );
  fc.assert(
    fc.property(fc.array(message, { minLength: 1, maxLength: 8 }), (messages) => {
      const roles = normal(messages).map(({ role }) => role);
      expect(roles.lastIndexOf("system")).toBeLessThanOrEqual(0);
      for (const [index, role] of roles.entries()) if (role !== "tool") expect(role).not.toBe(roles[index + 1] ?? "");
      expect(typeof hermes.render({ messages: normal(messages) })).toBe("string");
    }),
    { numRuns: 300 },
  );
});
