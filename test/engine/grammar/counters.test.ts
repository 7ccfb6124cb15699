/** Counts beside the grammar: they follow JSON text byte by byte, never pass a limit, and say so of every token beforehand. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { CounterTable } from "../../../src/decoding/constraint.ts";
import { type CounterState, Counters } from "../../../src/engine/grammar/counters.ts";
import { TokenFilter } from "../../../src/engine/grammar/token-filter.ts";
import { textConstraint } from "../../../src/text/index.ts";
import { isLegal } from "../../support/grammar-walk.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

function tableOf(schema: unknown): CounterTable {
  const constraint = textConstraint({
    format: { kind: "json_schema", schema, strict: true },
    calls: null,
    thoughts: { kind: "none" },
    controlId: () => undefined,
  });
  if (constraint?.counters == null) throw new Error("nothing is counted");
  return constraint.counters;
}

const SCHEMA = {
  type: "object",
  properties: {
    text: { type: "string", maxLength: 40 },
    list: { type: "array", items: { type: "string", maxLength: 35 }, maxItems: 70 },
    pair: { type: "array", prefixItems: [{ type: "string", maxLength: 33 }], items: { type: "array", maxItems: 66 } },
    map: { type: "object", additionalProperties: { type: "string", maxLength: 50 }, maxProperties: 80 },
    both: { anyOf: [{ type: "string", maxLength: 60 }, { type: "string", maxLength: 45 }, { type: "integer" }] },
  },
};
const counters = new Counters(tableOf(SCHEMA));

function passes(text: string): boolean {
  return counters.advance(counters.start, bytes(text)) !== null;
}

describe("limits by place", () => {
  const strings: readonly (readonly [string, (content: string) => string, number])[] = [
    ["a property", (content) => `{"text": "${content}"}`, 40],
    ["the tighter branch", (content) => `{"both": "${content}"}`, 45],
    ["an element", (content) => `{"list": ["x", "${content}"]}`, 35],
    ["an element of a tuple", (content) => `{"pair": ["${content}"]}`, 33],
    ["a member of any name", (content) => `{"map": {"k\\n": "", "é": "${content}"}}`, 50],
  ];
  for (const [what, textOf, limit] of strings) {
    test(`${what}: characters, not bytes`, () => {
      for (const letter of ["x", "é", "😀", "\\n", "\\u00e9", "\\ud83d\\ude00"]) {
        expect([letter, passes(textOf(letter.repeat(limit)))]).toEqual([letter, true]);
        expect([letter, passes(textOf(letter.repeat(limit + 1)))]).toEqual([letter, false]);
      }
    });
  }

  const lists: readonly (readonly [string, (items: readonly string[]) => string, string, number])[] = [
    ["elements", (items) => `{"list": [${items.join(", ")}]}`, '"a,b]"', 70],
    ["elements within an element", (items) => `{"pair": ["x", [], [${items.join(", ")}]]}`, "[1, 2]", 66],
    ["scalars", (items) => `{"pair": ["x", [${items.join(", ")}]]}`, "12", 66],
    ["members", (items) => `{"map": {${items.join(", ")}}}`, '"k": "v,w"', 80],
  ];
  for (const [what, textOf, item, limit] of lists) {
    test(`${what}: as many as the limit`, () => {
      const items = (count: number) => Array.from({ length: count }, () => item);
      expect(passes(textOf([]))).toBe(true);
      expect(passes(textOf(items(limit)))).toBe(true);
      expect(passes(textOf(items(limit + 1)))).toBe(false);
    });
  }

  test("names are not counted as values", () => {
    expect(passes(`{"${"k".repeat(200)}": 1, "map": {"${"k".repeat(200)}": "v"}}`)).toBe(true);
  });

  test("behind a start in other text", () => {
    const { nodes, starts } = tableOf(SCHEMA);
    const later = new Counters({ nodes, starts: [{ after: "args: ", root: starts[0]?.root ?? [] }] });
    const run = (text: string) => later.advance(later.start, bytes(text)) !== null;
    const long = `{"text": "${"x".repeat(41)}"}`;
    expect(run(`"${long}`)).toBe(true);
    expect(run(`some "text" args: ${long}`)).toBe(false);
    expect(run(`args: {"text": "x"} and {"text": "${"x".repeat(41)}"}`)).toBe(true);
    expect(run(`args: {"text": "x"} args: ${long}`)).toBe(false);
  });
});

test("the filter clears the tokens that would pass a limit, and only those", () => {
  const letters = fc.string({ unit: fc.constantFrom("x", "é", "\\n", "\\u00e9", ",", "]", "😀"), maxLength: 5 });
  const long = fc.constantFrom("x".repeat(34), "z".repeat(20), "é".repeat(40));
  // What may stand behind the text of an open string, as far as the grammar goes.
  const behind = fc.constantFrom("", '"', '"]', '"}', '", ', '", "', '", "x', '", "k": "v', '", "k": "v", "k": "');
  const token = fc.tuple(fc.oneof(letters, long), behind).map((parts) => parts.join(""));
  const cut = fc.constantFrom("\\", "\\u0", "x\\u");
  const texts = fc.constantFrom(
    ...[10, 35, 38, 39, 40].map((n) => `{"text": "${"x".repeat(n)}`),
    `{"list": [${'"a", '.repeat(69)}"b`,
    `{"list": [${'"a", '.repeat(60)}"b`,
    `{"map": {${'"k": "v", '.repeat(79)}"k": "`,
    `{"map": {${'"k": "v", '.repeat(78)}"k": "${"x".repeat(49)}`,
  );
  fc.assert(
    fc.property(fc.uniqueArray(fc.oneof(token, cut), { minLength: 1, maxLength: 60 }), texts, (given, text) => {
      const tokens = given.filter((one) => one !== "");
      const vocabulary = tokens.map(bytes);
      const filter = new TokenFilter(vocabulary);
      const state: CounterState | null = counters.advance(counters.start, bytes(text));
      if (state === null) throw new Error(`${text} passes a limit`);
      const mask = new Uint32Array(Math.ceil(tokens.length / 32)).fill(0xffff_ffff);
      filter.apply(counters, state, mask);
      for (const [id, own] of vocabulary.entries()) {
        const passesOn = counters.advance(state, own) !== null;
        // Escapes that are cut are taken for whole ones, so a token may be denied near the limit, never let through.
        if (isLegal(mask, id)) expect([tokens[id], passesOn]).toEqual([tokens[id], true]);
        else if (!/\\$|\\u.?$/.test(tokens[id] ?? "")) expect([tokens[id], passesOn]).toEqual([tokens[id], false]);
      }
    }),
    { numRuns: 1000 },
  );
});
