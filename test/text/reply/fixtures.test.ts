/** The cases of tool-calls.json: whole, one character at a time, and cut at every position. */
import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { CallFamily } from "../../../src/text/chat/call-syntax.ts";
import type { ReplyForm } from "../../../src/text/reply/reply-parser.ts";
import { DATA, SHARED } from "../fixtures.ts";
import { CHANNEL, characters, outcome, read, THINK } from "./reading.ts";

interface Case {
  readonly id: string;
  readonly family: string;
  readonly text: string;
  readonly tools: readonly { readonly function: { readonly name: string; readonly parameters: object } }[] | null;
  readonly in_thinking: boolean;
  readonly finish: "stop" | "length";
  readonly expect: {
    readonly reasoning: string;
    readonly content: string;
    readonly tool_calls: readonly { readonly name: string; readonly arguments: unknown }[];
    readonly finish: string;
  };
}

function casesOf(path: string): readonly Case[] {
  return JSON.parse(readFileSync(path, "utf8")).cases;
}

/** Names of models in the file → families. */
const FAMILIES: Readonly<Record<string, CallFamily>> = {
  hermes: "hermes",
  xml: "xml",
  gemma4: "gemma4",
  muse: "muse",
  minicpm5: "minicpm5",
  lfm2: "lfm2",
  nemotron: "xml",
  qwen3: "hermes",
  "qwen3.8": "xml",
};

function formOf(one: Case): ReplyForm {
  const family = FAMILIES[one.family] ?? null;
  return {
    reasoning: family === "muse" ? { kind: "channels" } : family === "gemma4" ? CHANNEL : THINK,
    start: one.in_thinking ? "inside" : "outside",
    family,
    tools: (one.tools ?? []).map((tool) => tool.function),
    begun: "",
  };
}

const CASES = casesOf(join(DATA, "tool-calls.json"));

test("the copy has every case", () => {
  expect(CASES).toHaveLength(38);
  expect(CASES.every(({ family }) => Object.hasOwn(FAMILIES, family))).toBe(true);
});

for (const one of CASES) {
  describe(one.id, () => {
    const form = formOf(one);
    const end = one.finish === "stop" ? "ended" : "cut";
    const whole = read([one.text], form, end);

    test("whole", () => {
      expect(whole.reasoning.trim()).toBe(one.expect.reasoning);
      expect(whole.content.trim()).toBe(one.expect.content);
      const calls = whole.calls.map((call) => ({ name: call.name, arguments: JSON.parse(call.arguments) }));
      expect(calls).toEqual([...one.expect.tool_calls]);
      const finish = whole.calls.length > 0 && !whole.endedInCall ? "tool_calls" : one.finish;
      expect(finish).toBe(one.expect.finish);
    });

    test("one character at a time", () => {
      expect(outcome(read(characters(one.text), form, end))).toEqual(outcome(whole));
    });

    test("cut at every position", () => {
      for (let at = 1; at < one.text.length; at++) {
        const cut = outcome(read([one.text.slice(0, at), one.text.slice(at)], form, end));
        expect(cut).toEqual(outcome(whole));
      }
    });
  });
}

const ORIGINAL = join(SHARED, "fixtures/tool-calls.json");
test.skipIf(!existsSync(ORIGINAL))("the copy is that of the specification (needs ../shared)", () => {
  expect(CASES).toEqual(casesOf(ORIGINAL));
});
