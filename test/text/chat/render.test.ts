/** Traits found by probing, and prompts rendered whole, for templates in the manner of each family. */
import { expect, test } from "bun:test";
import { writeCalls } from "../../../src/text/chat/call-syntax.ts";
import { ChatTemplate } from "../../../src/text/chat/chat-template.ts";
import type { Conversation, Message, ToolCall } from "../../../src/text/chat/messages.ts";
import { TemplateError } from "../../../src/text/jinja/errors.ts";
import { parseJsonKeepingNumbers } from "../../../src/text/json-numbers.ts";
import * as templates from "./templates.ts";

const TOKENS = { bos: "<s>", eos: "</s>", pad: null, unk: null, additional: ["<x>"] };

function chat(source: string, now?: () => Date): ChatTemplate {
  return new ChatTemplate(new Map([["default", source]]), TOKENS, now);
}

const user = (content: string): Message => ({ role: "user", content });
const system = (content: string): Message => ({ role: "system", content });
const call: ToolCall = { id: "call_0", name: "look", arguments: { city: "Łódź", days: 2, deep: null, ok: true } };
const tools = [{ name: "look", parameters: { type: "object", properties: { city: { type: "string" } } } }];
const toolTurns: readonly Message[] = [
  user("Weather?"),
  { role: "assistant", content: "", reasoning: "I must look.", toolCalls: [call] },
  { role: "tool", content: "12 °C", toolCallId: "call_0", name: "look" },
  { role: "tool", content: "rain", toolCallId: "call_0", name: "look" },
];

test("SmolLM2: a default system turn, any role printed, no tools", () => {
  const template = chat(templates.SMOLLM2);
  expect(template.traits).toMatchObject({
    supportsSystem: true,
    supportsTools: false,
    rendersToolCalls: false,
    rendersToolResults: false,
    acceptsNeighbours: false,
    thinking: "none",
    thinkingDefault: false,
    thinkingSwitch: false,
    effort: null,
    keepsReasoning: "never",
    usesDate: false,
    generationPrompt: "<|im_start|>assistant\n",
    controlStrings: ["<|im_start|>", "<|im_end|>"],
    callFamily: null,
  });
  expect(template.render({ messages: [user("Hi")] })).toBe(
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" +
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
  );
  // Calls as text in the default syntax, results as one user turn, since the model has no role for them.
  expect(template.render({ messages: [system("S"), ...toolTurns], tools }, { addGenerationPrompt: false })).toBe(
    "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n" +
      '<tool_call>\n{"name": "look", "arguments": {"city": "Łódź", "days": 2, "deep": null, "ok": true}}\n</tool_call>' +
      "<|im_end|>\n<|im_start|>user\n<tool_response>\n12 °C\n</tool_response>\n<tool_response>\nrain\n</tool_response>" +
      "<|im_end|>\n",
  );
});

test("hermes: tools, calls, shared results, thinking by switch", () => {
  const template = chat(templates.HERMES);
  expect(template.traits).toMatchObject({
    supportsSystem: true,
    supportsTools: true,
    rendersToolCalls: true,
    rendersToolResults: true,
    needsArgumentObject: false,
    thinking: "switch",
    thinkingDefault: true,
    thinkingSwitch: true,
    keepsReasoning: "since_user",
    callFamily: "hermes",
  });
  expect(template.render({ messages: [system("Be brief."), ...toolTurns], tools })).toBe(
    "<|im_start|>system\nBe brief.\n\n# Tools\n\n<tools>\n" +
      '{"type": "function", "function": {"name": "look", "description": "", "parameters": ' +
      '{"type": "object", "properties": {"city": {"type": "string"}}}}}' +
      "\n</tools><|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n" +
      "<think>\nI must look.\n</think>\n\n" +
      '<tool_call>\n{"name": "look", "arguments": {"city": "Łódź", "days": 2, "deep": null, "ok": true}}\n</tool_call>' +
      "<|im_end|>\n<|im_start|>user\n<tool_response>\n12 °C\n</tool_response>\n<tool_response>\nrain\n</tool_response>" +
      "<|im_end|>\n<|im_start|>assistant\n",
  );
  const off = template.render({ messages: [user("Hi")] }, { enableThinking: false });
  expect(off).toEndWith("<|im_start|>assistant\n<think>\n\n</think>\n\n");
  expect(template.render({ messages: [user("Hi")], kwargs: { enable_thinking: false } })).toBe(off);
  expect(
    template.render({ messages: [user("Hi")], kwargs: { enable_thinking: false } }, { enableThinking: true }),
  ).not.toBe(off);
  expect(template.render({ messages: [user("Hi")] }, { reasoningEffort: "none" })).toBe(off);
});

test("xml: prefilled thinking, arguments iterated, efforts that do not throw", () => {
  const template = chat(templates.XML);
  expect(template.traits).toMatchObject({
    thinking: "prefilled",
    thinkingDefault: true,
    thinkingSwitch: true,
    thinkingTags: { open: "<think>", close: "</think>" },
    effort: { variable: "reasoning_effort", values: ["low", "medium", "xhigh"] },
    keepsReasoning: "always",
    needsArgumentObject: true,
    generationPrompt: "<|im_start|>assistant\n<think>\n",
    callFamily: "xml",
  });
  const text = template.render({ messages: toolTurns, tools });
  expect(text).toContain(
    "<function=look>\n<parameter=city>\nŁódź\n</parameter>\n<parameter=days>\n2\n</parameter>\n" +
      "<parameter=deep>\nNone\n</parameter>\n<parameter=ok>\nTrue\n</parameter>\n</function>",
  );
  // high is as far from medium as from xhigh: the lower one. A kwarg of the client's own is mapped alike.
  const medium = chat(
    "{{ reasoning_effort }}{% if reasoning_effort == 'high' %}{{ raise_exception('no') }}{% endif %}",
  );
  expect(medium.render({ messages: [user("x")] }, { reasoningEffort: "high" })).toBe("medium");
  expect(medium.render({ messages: [user("x")], kwargs: { reasoning_effort: "max" } })).toBe("xhigh");
  expect(() => template.render({ messages: [] })).toThrow(new TemplateError("No messages provided."));
});

test("a template without system role that wants alternation", () => {
  const template = chat(templates.ALTERNATING);
  expect(template.traits).toMatchObject({ supportsSystem: false, supportsTools: false, acceptsNeighbours: false });
  expect(
    template.render({ messages: [system("Be kind."), user("Hi"), { role: "assistant", content: "Yo" }, user("?")] }),
  ).toBe(
    "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n" +
      "<start_of_turn>user\n?<end_of_turn>\n<start_of_turn>model\n",
  );
  expect(template.render({ messages: [system("Only this")] })).toContain("<start_of_turn>user\nOnly this<end_of_turn>");
  // The results' turn and the user's own that follows it become one.
  const turns: readonly Message[] = [...toolTurns, user("And?")];
  expect(template.render({ messages: turns })).toContain(
    "<tool_response>\nrain\n</tool_response>\n\nAnd?<end_of_turn>",
  );
});

test("a template that drops structured calls but knows results", () => {
  const template = chat(templates.LFM);
  expect(template.traits).toMatchObject({
    supportsTools: true,
    rendersToolCalls: false,
    rendersToolResults: true,
    thinking: "self",
    thinkingSwitch: false,
    callFamily: "lfm2",
  });
  expect(template.render({ messages: toolTurns })).toBe(
    "<s><|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n" +
      "<|tool_call_start|>[look(city='Łódź', days=2, deep=None, ok=True)]<|tool_call_end|><|im_end|>\n" +
      "<|im_start|>tool\n<|tool_response_start|>12 °C<|tool_response_end|><|im_end|>\n" +
      "<|im_start|>tool\n<|tool_response_start|>rain<|tool_response_end|><|im_end|>\n<|im_start|>assistant\n",
  );
});

test("an opener that is prefilled whatever is asked gets its closer", () => {
  const template = chat(templates.ALWAYS_OPEN);
  expect(template.traits).toMatchObject({ thinking: "prefilled", thinkingSwitch: false });
  expect(template.render({ messages: [user("Hi")] })).toEndWith("<|im_start|>assistant\n<think>\n");
  expect(template.render({ messages: [user("Hi")] }, { enableThinking: false })).toEndWith("<think>\n</think>\n\n");
});

test("dates, strengths, and neighbours that the template joins itself", () => {
  const template = chat(templates.DATED, () => new Date(2026, 4, 6, 7, 8, 9));
  expect(template.traits).toMatchObject({
    usesDate: true,
    usesTimeOfDay: false,
    acceptsNeighbours: true,
    effort: { variable: "reasoning_strength", values: ["low", "medium", "high", "xhigh"] },
  });
  expect(template.warnings).toEqual([]);
  expect(template.render({ messages: [user("a"), user("b")] }, { reasoningEffort: "minimal" })).toBe(
    "<|start|>system<|message|>Today is 06 May 2026. Strength low.<|eot|><|start|>user<|message|> a b<|eot|><|start|>assistant",
  );
  expect(template.render({ messages: [user("a")], kwargs: { current_date: "1 Jan" } })).toContain("Today is 1 Jan.");
  const clock = chat("{{ strftime_now('%H:%M') }}{{ messages[0].content }}");
  expect(clock.traits).toMatchObject({ usesDate: false, usesTimeOfDay: true });
  expect(clock.warnings).toHaveLength(1);
});

test("continuing the last assistant message", () => {
  const template = chat(templates.HERMES);
  const messages: readonly Message[] = [user("Count"), { role: "assistant", content: "1, 2, " }];
  expect(template.render({ messages }, { continueFinal: true })).toBe(
    "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n1, 2, ",
  );
  expect(() => template.render({ messages: [user("x")] }, { continueFinal: true })).toThrow(
    "only an assistant message",
  );
  expect(() => chat("{{ messages[0].content }}").render({ messages }, { continueFinal: true })).toThrow(
    "does not print",
  );
});

test("what a template is given", () => {
  const template = chat(
    "{{ [bos_token, eos_token, pad_token, unk_token, additional_special_tokens, add_generation_prompt, tools is defined," +
      " documents is defined, enable_thinking is defined, messages]|tojson }}",
  );
  const conversation: Conversation = {
    messages: [
      { role: "assistant", content: "a", reasoning: "r" },
      { role: "user", content: "u", name: "n" },
    ],
    tools: [],
    kwargs: { documents: ["no"], messages: "no", bos_token: "no" },
  };
  expect(JSON.parse(template.render(conversation, { addGenerationPrompt: false }))).toEqual([
    ...["<s>", "</s>", "", "", ["<x>"], false, false, false, false],
    [
      { role: "assistant", content: "a", reasoning_content: "r", thinking: "r" },
      { role: "user", content: "u", name: "n" },
    ],
  ]);
});

test("numbers of tools and arguments reach the prompt as written", () => {
  const parameters = parseJsonKeepingNumbers('{"type":"number","minimum":1.0,"maximum":10}');
  const given = parseJsonKeepingNumbers('{"x":1.0,"y":1}');
  if (typeof parameters !== "object" || parameters === null || typeof given !== "object" || given === null)
    throw Error();
  const text = chat(templates.HERMES).render({
    messages: [user("x"), { role: "assistant", content: "", toolCalls: [{ id: "1", name: "f", arguments: given }] }],
    tools: [{ name: "f", parameters }],
  });
  expect(text).toContain('{"type": "number", "minimum": 1.0, "maximum": 10}');
  expect(text).toContain('{"x": 1.0, "y": 1}');
});

test("each family's syntax for calls", () => {
  const calls: readonly ToolCall[] = [
    { id: "1", name: "f", arguments: { s: "it's\n", n: 3, o: { k: [1, "v"] }, b: false } },
    { id: "2", name: "g", arguments: {} },
  ];
  expect(writeCalls("hermes", calls)).toBe(
    '<tool_call>\n{"name": "f", "arguments": {"s": "it\'s\\n", "n": 3, "o": {"k": [1, "v"]}, "b": false}}\n</tool_call>\n' +
      '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
  );
  expect(writeCalls("xml", calls)).toBe(
    "<tool_call>\n<function=f>\n<parameter=s>\nit's\n\n</parameter>\n<parameter=n>\n3\n</parameter>\n" +
      '<parameter=o>\n{"k": [1, "v"]}\n</parameter>\n<parameter=b>\nFalse\n</parameter>\n</function>\n</tool_call>\n' +
      "<tool_call>\n<function=g>\n</function>\n</tool_call>",
  );
  expect(writeCalls("lfm2", calls)).toBe(
    '<|tool_call_start|>[f(s=\'it\\\'s\\n\', n=3, o={"k": [1, "v"]}, b=False), g()]<|tool_call_end|>',
  );
  expect(writeCalls("gemma4", calls)).toBe(
    '<|tool_call>call:f{b:false,n:3,o:{k:[1,<|"|>v<|"|>]},s:<|"|>it\'s\n<|"|>}<tool_call|><|tool_call>call:g{}<tool_call|>',
  );
  expect(writeCalls("minicpm5", calls)).toBe(
    '<function name="f"><param name="s">it\'s\n</param><param name="n">3</param><param name="o">{"k": [1, "v"]}</param>' +
      '<param name="b">False</param></function>\n<function name="g"></function>',
  );
  expect(writeCalls("muse", calls)).toBe(
    '<atem:function_calls>\n<atem:invoke name="f">\n<atem:parameter name="s">it\'s\n</atem:parameter>\n' +
      '<atem:parameter name="n">3</atem:parameter>\n<atem:parameter name="o">{"k": [1, "v"]}</atem:parameter>\n' +
      '<atem:parameter name="b">False</atem:parameter>\n</atem:invoke>\n<atem:invoke name="g">\n</atem:invoke>\n' +
      "</atem:function_calls>",
  );
  expect(writeCalls("xml", [{ id: "1", name: "f", arguments: "{broken" }])).toContain(
    "<parameter=arguments>\n{broken\n",
  );
});
