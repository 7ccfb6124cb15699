/** Expressions as automata against JavaScript's own engine, and the refusals by name. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { regexAutomaton } from "../../../src/text/grammar/regex-automaton.ts";
import { parseRegex } from "../../../src/text/grammar/regex-parser.ts";
import { RegexError } from "../../../src/text/grammar/regex-tree.ts";
import { conformsTo } from "./accepting.ts";

const atom = fc.constantFrom("a", "b", "[ab]", "[^a]", "\\d", ".", "é", "(?:ab)", "x", "\\u0061", "\\.");
const quantifier = fc.constantFrom("", "", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?");
const piece = fc.tuple(atom, quantifier).map(([a, q]) => a + q);
const sequence = fc.array(piece, { maxLength: 4 }).map((parts) => parts.join(""));
const regex = fc
  .tuple(fc.boolean(), fc.array(sequence, { minLength: 1, maxLength: 3 }), fc.boolean())
  .map(([start, options, end]) => `${start ? "^" : ""}(${options.join("|")})${end ? "$" : ""}`);
const sample = fc.string({ unit: fc.constantFrom("a", "b", "x", "é", "1", ".", "😀"), maxLength: 7 });

describe("expressions", () => {
  test("match what JavaScript matches", () => {
    fc.assert(
      fc.property(regex, fc.array(sample, { minLength: 5, maxLength: 20 }), (source, texts) => {
        const automaton = regexAutomaton(parseRegex(source));
        const native = new RegExp(source, "u");
        for (const text of texts) expect([text, conformsTo(automaton, text)]).toEqual([text, native.test(text)]);
      }),
      { numRuns: 500 },
    );
  });

  test("anchors in the middle are passed only where they hold", () => {
    for (const source of ["a(^b|c)", "(^|x)a", "a($|b)c?", "^^a$$", "$^", "a|^$"]) {
      const automaton = regexAutomaton(parseRegex(source));
      for (const text of ["", "a", "b", "ab", "xa", "ac", "abc", "xab", "aa"]) {
        expect([source, text, conformsTo(automaton, text)]).toEqual([source, text, new RegExp(source, "u").test(text)]);
      }
    }
  });

  test("what is not regular is refused by name", () => {
    const refusals: readonly (readonly [string, RegExp])[] = [
      ["(?=a)b", /lookaround/],
      ["(?<!a)b", /lookaround/],
      ["\\bword", /'\\b'/],
      ["(a)\\1", /backreferences/],
      ["(?<n>a)\\k<n>", /backreferences/],
      ["\\p{L}", /'\\p\{…\}'/],
      ["a{1001}", /more than 1000/],
      [`${"(".repeat(25)}a${")".repeat(25)}`, /nested deeper than 24/],
      ["(a", /without '\)'/],
      ["a)", /without '\('/],
      ["[a", /ends too early/],
      ["*a", /nothing to repeat/],
      ["[b-a]", /no order/],
      ["a{2,1}", /out of order/],
    ];
    for (const [source, why] of refusals) expect(() => parseRegex(source), source).toThrow(why);
    expect(() => regexAutomaton(parseRegex("((a{100}){100}){100}"))).toThrow(RegexError);
  });
});
