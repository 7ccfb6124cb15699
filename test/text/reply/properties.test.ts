/** What holds for every text: cuts do not matter, nothing is lost or held back without need, and time is linear. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type CallFamily, writeCalls } from "../../../src/text/chat/call-syntax.ts";
import { PLAIN_REPLY, type ReplyForm, ReplyParser } from "../../../src/text/reply/reply-parser.ts";
import { CHANNEL, characters, outcome, read, THINK } from "./reading.ts";

const RUN = { seed: 20_261_130, numRuns: 400 };
const FAMILIES: readonly CallFamily[] = ["hermes", "xml", "gemma4", "muse", "minicpm5", "lfm2"];

const TOOL = {
  name: "f",
  parameters: {
    type: "object",
    properties: {
      s: { type: "string" },
      i: { type: "integer" },
      n: { type: "number" },
      b: { type: "boolean" },
      o: { type: "object" },
      l: { type: "array" },
      z: { type: ["integer", "null"] },
    },
  },
};

function formOf(family: CallFamily, start: ReplyForm["start"] = "outside"): ReplyForm {
  const reasoning = family === "muse" ? ({ kind: "channels" } as const) : family === "gemma4" ? CHANNEL : THINK;
  return { reasoning, start, family, tools: [TOOL, { name: "g" }], begun: "" };
}

/** Parts of every family's markup, and what may stand between them. */
const PARTS = [
  ...["<think>", "</think>", "<|channel>thought", "\n", "<channel|>", "<|start|>", "assistant", " to=self", " to=user"],
  ...[
    "<|message|>",
    "<|eom|>",
    "<tool_call>",
    "</tool_call>",
    '{"name": "f", "arguments": ',
    '{"s": "x"}',
    "}",
    "{",
    '"',
  ],
  ...["<function=f>", "<parameter=s>", "</parameter>", "</function>", "<|tool_call>", "call:f{", '<|"|>', "s:", "i:3"],
  ...[
    "<tool_call|>",
    "<atem:function_calls>",
    '<atem:invoke name="f">',
    '<atem:parameter name="s">',
    "</atem:parameter>",
  ],
  ...[
    "</atem:invoke>",
    "</atem:function_calls>",
    '<function name="f">',
    '<param name="s">',
    "<![CDATA[",
    "]]>",
    "</param>",
  ],
  ...[
    "<|tool_call_start|>",
    "[f(",
    "s='x'",
    ")",
    "]",
    ", ",
    "<|tool_call_end|>",
    "\\",
    "'",
    " ",
    "\n\n",
    "answer",
    "é",
    "😀",
  ],
];
const part = fc.constantFrom(...PARTS);
/** A beginning of a part, so that markup breaks off everywhere. */
const broken = fc.tuple(part, fc.nat({ max: 20 })).map(([text, length]) => [...text].slice(0, length).join(""));
const text = fc.array(fc.oneof({ weight: 4, arbitrary: part }, broken), { maxLength: 30 }).map((list) => list.join(""));
const start = fc.constantFrom("outside" as const, "inside" as const, "answer" as const);
const end = fc.constantFrom("ended" as const, "cut" as const);

function cutAt(whole: string, places: readonly number[]): string[] {
  const units = [...whole];
  const sorted = [...new Set(places.map((place) => place % (units.length + 1)))].sort((a, b) => a - b);
  return [0, ...sorted].map((place, i) => units.slice(place, sorted[i]).join(""));
}

for (const family of FAMILIES) {
  describe(family, () => {
    test("the outcome does not depend on the cuts", () => {
      fc.assert(
        fc.property(text, start, end, fc.array(fc.nat(200), { maxLength: 5 }), (whole, from, how, places) => {
          const form = formOf(family, from);
          const once = outcome(read([whole], form, how));
          expect(outcome(read(characters(whole), form, how))).toEqual(once);
          expect(outcome(read(cutAt(whole, places), form, how))).toEqual(once);
          for (const call of once.calls) expect(typeof JSON.parse(call.arguments)).toBe("object");
        }),
        RUN,
      );
    });

    test("pieces are whole characters", () => {
      fc.assert(
        fc.property(text, (whole) => {
          const { events } = read(characters(whole), formOf(family));
          expect(events.every((event) => event.type === "call" || event.text.isWellFormed())).toBe(true);
        }),
        RUN,
      );
    });

    test("without calls the text comes out as it came in", () => {
      fc.assert(
        fc.property(text, (whole) => {
          const { content, calls } = read(characters(whole), { ...formOf(family), reasoning: null });
          // With calls, `read` has seen that every piece is a stretch of the text.
          if (calls.length === 0) expect(content).toBe(whole);
        }),
        RUN,
      );
    });

    test("nothing is held back but the beginning of an opener and white space before it", () => {
      const opener = {
        hermes: "<tool_call>",
        xml: "<tool_call>",
        gemma4: "<|tool_call>",
        muse: "<atem:function_calls>",
      };
      const markers = { ...opener, minicpm5: '<function name="', lfm2: "<|tool_call_start|>" };
      const marker = markers[family];
      const prose = fc
        .array(fc.constantFrom("a", " ", "\n", "<", "<t", "tool", "_call", "function", '="', "|", ">"), {
          maxLength: 20,
        })
        .map((list) => list.join(""))
        .filter((whole) => !whole.includes(marker));
      fc.assert(
        fc.property(prose, (whole) => {
          const parser = new ReplyParser({ ...formOf(family), reasoning: null });
          let out = "";
          let seen = "";
          for (const unit of whole) {
            seen += unit;
            out += parser
              .push(unit)
              .map((event) => (event.type === "text" ? event.text : ""))
              .join("");
            let possible = marker.length - 1;
            while (!seen.endsWith(marker.slice(0, possible))) possible -= 1;
            expect(out).toBe(seen.slice(0, seen.length - possible).trimEnd());
          }
        }),
        RUN,
      );
    });

    test("calls that are written are read again", () => {
      fc.assert(
        fc.property(fc.array(argumentsOf(family), { minLength: 1, maxLength: 3 }), (list) => {
          const written = list.map((given, i) => ({ id: String(i), name: "f", arguments: given }));
          const markup = writeCalls(family, written);
          const reply = family === "muse" ? ` to=f<|message|>${markup}<|eom|>` : markup;
          const { calls, content } = read([reply], formOf(family));
          expect(calls.map((call) => JSON.parse(call.arguments))).toEqual(list);
          expect(content).toBe("");
        }),
        RUN,
      );
    });
  });
}

/** Arguments that the family's syntax can carry: raw values must not hold what ends them. */
function argumentsOf(family: CallFamily) {
  const letters = fc.constantFrom(
    "a",
    "é",
    "😀",
    " ",
    "\n",
    '"',
    "'",
    "\\",
    "<",
    ">",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "(",
    "&",
    "1",
  );
  const string = fc
    .string({ unit: letters, maxLength: 12 })
    .filter((value) => family !== "gemma4" || !value.includes('<|"|>'));
  const key = fc.constantFrom("k", "key-2", "long_key");
  const json = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 2 },
      fc.oneof(string, fc.integer(), fc.boolean(), fc.constant(null)),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(key, tie("value"), { maxKeys: 3, noNullPrototype: true }),
    ),
  })).value;
  return fc.record(
    {
      s: string,
      i: fc.integer(),
      n: fc.integer({ min: -1000, max: 1000 }).map((value) => value / 8),
      b: fc.boolean(),
      o: fc.dictionary(key, json, { maxKeys: 3, noNullPrototype: true }),
      l: fc.array(json, { maxLength: 3 }),
      z: fc.option(fc.integer()),
    },
    { requiredKeys: [], noNullPrototype: true },
  );
}

test("with no tools and no split every text is text, at once", () => {
  fc.assert(
    fc.property(text, (whole) => {
      const parser = new ReplyParser(PLAIN_REPLY);
      for (const unit of whole) expect(parser.push(unit)).toMatchObject([{ type: "text", text: unit }]);
      expect(parser.finish("cut")).toEqual([]);
    }),
    RUN,
  );
});

describe("a megabyte in less than a second", () => {
  const fill = (unit: string) => unit.repeat(Math.ceil(1_000_000 / unit.length));
  const TEXTS: readonly (readonly [CallFamily, string, string])[] = [
    ["hermes", "openers", fill("<tool_call>")],
    ["hermes", "openers and braces", fill("<tool_call>{")],
    ["hermes", "braces", `<tool_call>${fill("{")}`],
    ["hermes", "openers and blanks", fill(`<tool_call>${" ".repeat(40)}`)],
    ["hermes", "values that are none", fill('<tool_call>{"a":1}x')],
    ["hermes", "commas and blanks", `<tool_call>{"a":[${fill(",  ")}]}</tool_call>`],
    ["hermes", "closers inside thoughts", `<think>${fill("</think")}`],
    ["xml", "openers inside a value", `${fill("<tool_call>\n<function=a>\n<parameter=b>\n")}</parameter>x`],
    ["gemma4", "openers", fill("<|tool_call>call:a{")],
    ["gemma4", "names that end nowhere", fill(`<|tool_call>call:${"a".repeat(94)}`)],
    ["gemma4", "braces", `<|tool_call>call:a${fill("{")}<tool_call|>`],
    ["lfm2", "brackets", `<|tool_call_start|>[f(${fill("[")}<|tool_call_end|>`],
    ["lfm2", "openers", fill("<|tool_call_start|>[f(")],
    ["lfm2", "words", `<|tool_call_start|>[f(${fill("a")})]<|tool_call_end|>`],
    ["minicpm5", "openers", fill('<function name="')],
    ["minicpm5", "sections", `<function name="f"><param name="s">${fill("<![CDATA[")}`],
    ["muse", "headers", fill("<|start|>to=")],
    ["muse", "openers", `<|message|>${fill("<atem:function_calls>")}`],
  ];
  test.each(TEXTS)("%s: %s", (family, _name, whole) => {
    // The best of a few: others use this machine too.
    let best = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 4 && best >= 1000; i++) {
      const before = performance.now();
      const parser = new ReplyParser(formOf(family));
      parser.push(whole);
      parser.finish("ended");
      best = Math.min(best, performance.now() - before);
    }
    expect(best).toBeLessThan(1000);
  });

  test("in pieces of a token's size it takes no longer with length squared", () => {
    const seconds = (length: number) => {
      const parser = new ReplyParser(formOf("hermes"));
      const before = performance.now();
      parser.push("<tool_call>");
      for (let i = 0; i < length; i++) parser.push('{"a');
      parser.finish("ended");
      return (performance.now() - before) / 1000;
    };
    seconds(20_000);
    expect(seconds(200_000)).toBeLessThan(Math.max(0.2, 60 * seconds(20_000)));
  });
});
