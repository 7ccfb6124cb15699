/** Grammar and parser held to each other: whatever a random model writes under a call grammar is read as calls that are valid. */
import { expect, test } from "bun:test";
import type { CallFamily } from "../../../src/text/chat/call-syntax.ts";
import { textConstraint } from "../../../src/text/index.ts";
import { ReplyParser } from "../../../src/text/reply/reply-parser.ts";
import { GrammarWalker } from "../../support/grammar-walk.ts";
import { judge } from "../../support/json-schemas.ts";
import { fixtureTokenizer } from "../../text/fixtures.ts";

const CLOSERS: Readonly<Record<CallFamily, string>> = {
  hermes: "",
  xml: "</parameter>\n</function>\n</tool_call>",
  gemma4: '<|"|>}<tool_call|>',
  lfm2: "')]<|tool_call_end|>",
  minicpm5: "]]></param></function>",
  muse: "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
};

const PARAMETERS = {
  type: "object",
  properties: {
    city: { type: "string" },
    n: { type: "integer", minimum: -5, maximum: 40 },
    flag: { type: "boolean" },
    unit: { enum: ["c", "f<", "x'y"] },
    tags: { type: "array", items: { type: "string" }, maxItems: 2 },
    opt: { type: ["string", "null"], maxLength: 4 },
    code: { type: "string", pattern: "^[a-z]{2}-\\d+$" },
    where: { type: "object", properties: { lat: { type: "number" }, none: { type: "null" } }, required: ["lat"] },
    any: {},
  },
  required: ["city", "n", "where"],
  additionalProperties: false,
};
const TOOLS = [
  { name: "weather", parameters: PARAMETERS, strict: true },
  { name: "free_tool", parameters: { type: "object", properties: { a: { type: "string" } } }, strict: false },
];

const walker = new GrammarWalker(fixtureTokenizer("qwen"));
const eosId = walker.tokenizer.eosIds[0] ?? -1;
const control = new Map(walker.tokenizer.control.map(({ content, id }) => [content, id]));

for (const family of Object.keys(CLOSERS) as CallFamily[]) {
  for (const parallel of [true, false]) {
    test(`${family}, ${parallel ? "any number of calls" : "one call"}`, async () => {
      const constraint = textConstraint({
        format: null,
        calls: { family, tools: TOOLS, required: true, parallel },
        thoughts: { kind: family === "muse" ? "channels" : "none" },
        controlId: (text) => control.get(text),
      });
      if (constraint === null) throw new Error("no constraint");
      const ajv = judge();
      let read = 0;
      for (let seed = 0; seed < 60; seed++) {
        const begins = family === "muse" && seed % 4 === 0 ? " to=self<|message|>hm<|eom|><|start|>assistant" : "";
        const { text, ended } = await walker.walk(constraint, {
          seed,
          eosId,
          begins,
          ends: CLOSERS[family],
          tokensMax: 300,
        });
        if (!ended || text.includes("\ufffd")) continue;
        const reasoning = family === "muse" ? ({ kind: "channels" } as const) : null;
        const parser = new ReplyParser({ reasoning, start: "outside", family, tools: TOOLS, begun: "" });
        const events = [...parser.push(text), ...parser.finish("ended")];
        const calls = events.flatMap((event) => (event.type === "call" ? [event] : []));
        expect(events.filter(({ type }) => type === "text")).toEqual([]);
        expect([text, calls.length > 0 && (parallel || calls.length === 1)]).toEqual([text, true]);
        for (const { call } of calls) {
          const value: unknown = JSON.parse(call.arguments);
          const isValid =
            call.name === "free_tool" ? ajv.validate({ type: "object" }, value) : ajv.validate(PARAMETERS, value);
          expect([text, isValid ? "" : ajv.errorsText()]).toEqual([text, ""]);
          if (call.name === "weather") read++;
        }
      }
      expect(read).toBeGreaterThan(2);
    }, 60_000);
  }
}
