/**
 * Call grammars of every family: what the family's template prints of a call is legal, token by token, and what a random
 * model writes looks like calls.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { GrammarSource } from "../../../src/engine/grammar/messages.ts";
import { type CallFamily, writeCalls } from "../../../src/text/chat/call-syntax.ts";
import { textConstraint } from "../../../src/text/index.ts";
import { GrammarWalker } from "../../support/grammar-walk.ts";
import { fixtureTokenizer } from "../../text/fixtures.ts";

const FAMILIES: readonly CallFamily[] = ["hermes", "xml", "gemma4", "lfm2", "minicpm5", "muse"];
const walker = new GrammarWalker(fixtureTokenizer("qwen"));
const { tokenizer, host } = walker;
const EOS = tokenizer.eosIds[0] ?? -1;
const control = new Map(tokenizer.control.map(({ content, id }) => [content, id]));

const PARAMETERS = {
  type: "object",
  properties: {
    city: { type: "string" },
    count: { type: "integer", minimum: 0, maximum: 500 },
    exact: { type: "boolean" },
    unit: { enum: ["metric", "imperial"] },
    tags: { type: "array", items: { type: "string" } },
    where: { type: "object", properties: { lat: { type: "number" }, note: { type: "string" } }, required: ["lat"] },
  },
  required: ["city", "count"],
  additionalProperties: false,
};
const TOOLS = [
  { name: "weather", parameters: PARAMETERS, strict: true },
  { name: "web_search", parameters: { type: "object", properties: { q: { type: "string" } } }, strict: false },
];

interface Wanted {
  readonly required?: boolean;
  readonly parallel?: boolean;
  readonly isToken?: boolean;
  readonly tools?: typeof TOOLS;
}

function grammarOf(
  family: CallFamily,
  { required = true, parallel = true, isToken = true, tools = TOOLS }: Wanted = {},
) {
  const constraint = textConstraint({
    format: null,
    calls: { family, tools, required, parallel },
    thoughts: { kind: family === "muse" ? "channels" : "none" },
    controlId: (text) => (isToken ? control.get(text) : undefined),
  });
  if (constraint === null) throw new Error("no constraint");
  return constraint;
}

let rows = 1_000_000;

/** How much of the text is legal, in tokens, and whether it may end there. */
async function legal(
  source: GrammarSource,
  text: string,
  isToken = true,
): Promise<{ readonly legal: string; readonly ends: boolean }> {
  const key = source.ebnf + source.markers.join();
  await host.compile(key, source);
  const row = rows++;
  await host.open({ row, key, eosIds: [EOS], accepted: [] });
  const ids = isToken ? tokenizer.encode(text, { addSpecialTokens: false }) : spelled(text);
  const kept = host.matcher(row).legal([...ids, EOS]);
  host.close(row);
  const detokenizer = tokenizer.detokenizer({ atTextStart: false });
  const read = ids.slice(0, kept).map((id) => detokenizer.push(id));
  return { legal: read.join("") + detokenizer.flush(), ends: kept === ids.length + 1 };
}

/** Ids of the text without control tokens. */
function spelled(text: string): readonly number[] {
  const steps = tokenizer.encodeInSteps({ token: null, text }, false);
  let step = steps.next();
  while (!step.done) step = steps.next();
  return step.value;
}

/** What a model of the family writes: for Muse in the channel of the tool. */
function written(family: CallFamily, name: string, calls: string): string {
  return family === "muse" ? ` to=${name}<|message|>${calls}` : calls;
}

const text = fc.oneof(
  fc.constantFrom(
    "Oslo",
    "",
    'say "hi"',
    "it's",
    "a\\b",
    "x < y & z",
    "two\nlines",
    "tab\t.",
    "größe 😀",
    "]]>",
    "</p>",
    ")}]>",
  ),
  fc.string({ maxLength: 8 }).filter((one) => one.isWellFormed() && !/\p{Cc}/u.test(one)),
);
const plainText = fc.constantFrom("Oslo", "São Paulo", "x y", "it's", "(1, 2)");

function argumentsOf(strings: fc.Arbitrary<string>) {
  return fc.record(
    {
      city: strings,
      count: fc.integer({ min: 0, max: 500 }),
      exact: fc.boolean(),
      unit: fc.constantFrom("metric", "imperial"),
      tags: fc.array(strings, { maxLength: 3 }),
      where: fc.record({ lat: fc.constantFrom(1.5, -3, 0.25), note: strings }, { requiredKeys: ["lat"] }),
    },
    { requiredKeys: ["city", "count"] },
  );
}

describe("a call as the template prints it is legal", () => {
  for (const family of FAMILIES) {
    // MiniCPM5's raw values hold no markup or line breaks; a template that prints them so cannot be read back either.
    const strings = family === "minicpm5" ? plainText : text;
    for (const isToken of [true, false]) {
      test(`${family}, its markers ${isToken ? "tokens" : "spelled"}`, async () => {
        await fc.assert(
          fc.asyncProperty(argumentsOf(strings), async (args) => {
            // In the schema's order, as models that follow it write them.
            const ordered = Object.fromEntries(
              Object.keys(PARAMETERS.properties).flatMap((key) => (key in args ? [[key, Reflect.get(args, key)]] : [])),
            );
            const calls = written(
              family,
              "weather",
              writeCalls(family, [{ id: "1", name: "weather", arguments: ordered }]),
            );
            expect(await legal(grammarOf(family, { isToken }), calls, isToken)).toEqual({ legal: calls, ends: true });
          }),
          { numRuns: 60 },
        );
      }, 30_000);
    }

    test(`${family}: any arguments of a tool that is not strict, and several calls`, async () => {
      const search = { id: "1", name: "web_search", arguments: { q: "what", n: 3, deep: { a: [1, "x"] } } };
      const one = written(family, "web_search", writeCalls(family, [search]));
      const two = written(family, "web_search", writeCalls(family, [search, search]));
      expect(await legal(grammarOf(family), one)).toEqual({ legal: one, ends: true });
      expect(await legal(grammarOf(family), two)).toEqual({ legal: two, ends: true });
      expect((await legal(grammarOf(family, { parallel: false }), two)).ends).toBe(false);
      expect(await legal(grammarOf(family, { parallel: false }), one)).toEqual({ legal: one, ends: true });
    });

    test(`${family}: only the tools that may be called, no text before the first call`, async () => {
      const [weather] = TOOLS;
      if (weather === undefined) throw new Error("no tool");
      const other = written(family, "web_search", writeCalls(family, [{ id: "1", name: "web_search", arguments: {} }]));
      expect((await legal(grammarOf(family, { tools: [weather] }), other)).ends).toBe(false);
      expect((await legal(grammarOf(family), "Let me see. ")).legal.length).toBeLessThan(2);
      const missing = written(
        family,
        "weather",
        writeCalls(family, [{ id: "1", name: "weather", arguments: { city: "x" } }]),
      );
      expect((await legal(grammarOf(family), missing)).ends).toBe(false);
    });

    test(`${family}: free text with calls in it, where they are not demanded`, async () => {
      for (const isToken of [true, false]) {
        const source = grammarOf(family, { required: false, isToken });
        const call = writeCalls(family, [{ id: "1", name: "weather", arguments: { city: "x", count: 1 } }]);
        const prose = "I look: 1 < 2, <tool, <|tool_, {[<func.";
        const [before, between] = family === "muse" ? [" to=user<|message|>", ""] : ["", prose];
        const textOnly = `${before}${prose}`;
        expect(await legal(source, textOnly, isToken)).toEqual({ legal: textOnly, ends: true });
        const whole = family === "muse" ? written(family, "weather", call) : `${between}${call}`;
        expect(await legal(source, whole, isToken)).toEqual({ legal: whole, ends: true });
        const wrong = whole.replace("count", "amount");
        expect((await legal(source, wrong, isToken)).ends).toBe(false);
      }
    });
  }

  test("a random model never comes to where nothing is legal", async () => {
    let ended = 0;
    for (const family of FAMILIES) {
      for (let seed = 0; seed < 20; seed++) {
        // Closing tags of free values are longer than what comes about by chance: those walks end at their limit.
        const { ended: hasEnd } = await walker.walk(grammarOf(family), { seed, eosId: EOS, tokensMax: 200 });
        if (hasEnd) ended++;
      }
    }
    expect(ended).toBeGreaterThan(20);
  }, 60_000);
});

describe("calls beside a format", () => {
  const both = (required: boolean) =>
    textConstraint({
      format: { kind: "json_schema", schema: { type: "object", properties: { a: { type: "null" } } }, strict: true },
      calls: { family: "hermes", tools: TOOLS, required, parallel: true },
      thoughts: { kind: "none" },
      controlId: (one) => control.get(one),
    });

  test("either, unless a call is demanded", async () => {
    const call = writeCalls("hermes", [{ id: "1", name: "web_search", arguments: { a: null } }]);
    for (const required of [false, true]) {
      const constraint = both(required);
      if (constraint === null) throw new Error("no constraint");
      expect(constraint.kind).toBe("tools");
      expect((await legal(constraint, call)).ends).toBe(true);
      expect((await legal(constraint, '{"a": null}')).ends).toBe(!required);
      expect((await legal(constraint, "free text")).ends).toBe(false);
    }
  });
});

describe("where a grammar begins", () => {
  const format = { kind: "choice", choices: ["yes", "no"] } as const;
  const tags = { open: "<think>", close: "</think>" };
  const at = (kind: "inside" | "may", isToken: boolean) =>
    textConstraint({
      format,
      calls: null,
      thoughts: { kind, tags },
      controlId: (one) => (isToken ? control.get(one) : undefined),
    });

  test("behind thoughts with tokens of their own, the engine waits for the closer", async () => {
    const [openerId, closerId] = [control.get("<think>") ?? -1, control.get("</think>") ?? -1];
    expect(at("inside", true)?.start).toEqual({ kind: "after_reasoning", inside: true, openerId, closerId });
    expect(at("may", true)?.start).toEqual({ kind: "after_reasoning", inside: false, openerId, closerId });
    const constraint = at("may", true);
    if (constraint === null) throw new Error("no constraint");
    for (const answer of ["yes", "\nno", "\n\nyes"]) expect((await legal(constraint, answer)).ends).toBe(true);
    expect((await legal(constraint, "\n\n\nyes")).ends).toBe(false);
  });

  test("spelled thoughts are part of the grammar", async () => {
    for (const kind of ["inside", "may"] as const) {
      const constraint = at(kind, false);
      if (constraint === null) throw new Error("no constraint");
      expect(constraint.start).toEqual({ kind: "at_once" });
      const thought = `${kind === "may" ? tags.open : ""}hm, </thin yes or no?${tags.close}\n\nyes`;
      expect((await legal(constraint, thought, false)).ends).toBe(true);
      expect((await legal(constraint, "yes", false)).ends).toBe(kind === "may");
      expect((await legal(constraint, `${thought} indeed`, false)).ends).toBe(false);
    }
  });
});
