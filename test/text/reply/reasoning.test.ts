/** Thoughts told from the answer (tool-calls.md §3). */
import { describe, expect, test } from "bun:test";
import type { ReplyForm } from "../../../src/text/reply/reply-parser.ts";
import { CHANNEL, characters, outcome, read, THINK } from "./reading.ts";

const FORM: ReplyForm = { reasoning: THINK, start: "outside", family: null, tools: [], begun: "" };
const GEMMA: ReplyForm = { ...FORM, reasoning: CHANNEL };
const MUSE: ReplyForm = { ...FORM, reasoning: { kind: "channels" } };

function split(text: string, form: ReplyForm): readonly [string, string] {
  const whole = read([text], form);
  expect(outcome(read(characters(text), form))).toEqual(outcome(whole));
  return [whole.reasoning, whole.content];
}

describe("tags", () => {
  test.each([
    ["<think>a</think>b", "outside", "a", "b"],
    ["  \n<think>\n a \n</think>\n\n  b \n", "outside", "a \n", "b \n"],
    ["no thoughts", "outside", "", "no thoughts"],
    // White space that turns out to be the answer's is kept.
    ["\n  indented", "outside", "", "\n  indented"],
    ["   ", "outside", "", "   "],
    ["", "outside", "", ""],
    ["<thin", "outside", "", "<thin"],
    ["<thinking>x", "outside", "", "<thinking>x"],
    ["a <think>b</think>", "outside", "", "a <think>b</think>"],
    ["</think>b", "outside", "", "</think>b"],
    ["<think>a", "outside", "a", ""],
    ["<think>a</thi", "outside", "a</thi", ""],
    ["<think>", "outside", "", ""],
    ["<think>a</think>", "outside", "a", ""],
    ["<think>a</think>\n", "outside", "a", ""],
    ["<think>a</think><t", "outside", "a", "<t"],
    ["<think>a<</</think>b", "outside", "a<</", "b"],
    // Blocks before the answer; later ones are text.
    ["<think>a</think>\n\n<think>b</think>c<think>d</think>", "outside", "a\n\nb", "c<think>d</think>"],
    ["<think></think>\n<think>b</think>c", "outside", "b", "c"],
    // The prompt has opened a block.
    ["a</think>\n\nb", "inside", "a", "b"],
    ["\n\na", "inside", "a", ""],
    ["</think>b", "inside", "", "b"],
    ["<think>\na</think>b", "inside", "a", "b"],
    ["<think><think>a</think>b", "inside", "<think>a", "b"],
    ["<th</think>b", "inside", "<th", "b"],
    ["a <think>b</think>c", "inside", "a <think>b", "c"],
    // The prompt ends inside the answer.
    [" <think>a</think>b", "answer", "", " <think>a</think>b"],
  ] as const)("%j, %s", (text, start, reasoning, content) => {
    expect(split(text, { ...FORM, start })).toEqual([reasoning, content]);
  });

  test("Gemma's channel", () => {
    expect(split("<|channel>thought\nWhy?<channel|>Because.", GEMMA)).toEqual(["Why?", "Because."]);
    expect(split("\nWhy?\n<channel|>Because.", { ...GEMMA, start: "inside" })).toEqual(["Why?\n", "Because."]);
    expect(split("<think>x</think>", GEMMA)).toEqual(["", "<think>x</think>"]);
  });

  test("thoughts come out at once, but for a possible beginning of the closer", () => {
    const { events } = read(["<think>", "ab", "c<", "/x", "</think", ">d"], FORM);
    expect(events.map((event) => event.type !== "call" && event.text)).toEqual(["ab", "c", "</x", "d"]);
  });
});

describe("channels", () => {
  test.each([
    [" to=self<|message|> Hm. <|eom|><|start|>assistant to=user<|message|> Hi <|eom|>", "Hm. ", " Hi "],
    ["to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b", "ab", ""],
    ["<|start|>assistant<|message|>Hi", "", "Hi"],
    ["to=user<|message|>a<|message|>b<|eom|>stray<|message|>c", "", "abc"],
    ["to=self<|message|>a<|start|>assistant to=user<|message|>b", "a", "b"],
    ["to=user<|message|>a<|eom|><|start|>assistant to=us", "", "a"],
    ["never a header", "", ""],
    ["to=user<|message|>a<|eo", "", "a<|eo"],
  ])("%j", (text, reasoning, content) => {
    expect(split(text, MUSE)).toEqual([reasoning, content]);
  });

  test("an answer that goes on has no header", () => {
    expect(split(" and more<|eom|>", { ...MUSE, start: "answer" })).toEqual(["", " and more"]);
  });

  test("a call does not go on in the next channel", () => {
    const form: ReplyForm = { ...MUSE, family: "muse", tools: [{ name: "f" }] };
    const text =
      'to=f<|message|><atem:function_calls>\n<atem:invoke name="f">\n<|eom|><|start|>assistant to=user<|message|>x';
    const { content, calls } = read([text], form);
    expect([content, calls]).toEqual(['<atem:function_calls>\n<atem:invoke name="f">\nx', []]);
  });
});
