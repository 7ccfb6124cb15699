/** The literal set against plain string functions. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { LiteralSet } from "../../src/text/tokenizer-literals.ts";

const character = fc.constantFrom("a", "b", "<", "|");
const word = (minLength: number, maxLength: number) =>
  fc.array(character, { minLength, maxLength }).map((list) => list.join(""));
const literals = fc.array(word(1, 4), { maxLength: 5 });

test("matchAt finds the longest string at a place", () => {
  fc.assert(
    fc.property(literals, word(0, 8), fc.nat(8), (literals, text, at) => {
      const lengths = literals.filter((literal) => text.startsWith(literal, at)).map((literal) => literal.length);
      expect(new LiteralSet(literals).matchAt(text, at)).toBe(Math.max(0, ...lengths));
    }),
    { numRuns: 2000 },
  );
});

test("edges: a proper beginning at the end, a proper end at the beginning", () => {
  fc.assert(
    fc.property(literals, word(0, 8), (literals, text) => {
      const set = new LiteralSet(literals);
      const properParts = (cut: (literal: string, length: number) => string) =>
        literals.flatMap((literal) => Array.from({ length: literal.length - 1 }, (_, i) => cut(literal, i + 1)));
      const beginnings = properParts((literal, length) => literal.slice(0, length));
      const ends = properParts((literal, length) => literal.slice(-length));
      expect(set.endsInBeginning(text)).toBe(beginnings.some((part) => text.endsWith(part)));
      expect(set.beginsWithEnd(text)).toBe(ends.some((part) => text.startsWith(part)));
    }),
    { numRuns: 2000 },
  );
});
