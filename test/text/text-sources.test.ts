/** Spans of shown text against the same told character by character. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { TextSources } from "../../src/text/text-sources.ts";

test("spans are the runs of the shown characters' sources, however the output is cut and what of it is swallowed", () => {
  const token = fc.record({ length: fc.integer({ min: 1, max: 4 }), source: fc.constantFrom("d", "l", "t") });
  const given = fc.record({
    tokens: fc.array(token, { minLength: 1, maxLength: 20 }),
    /** Lengths of stretches of the output, and whether they are shown; a cut after some of them. */
    stretches: fc.array(fc.tuple(fc.integer({ min: 1, max: 6 }), fc.boolean(), fc.boolean()), { maxLength: 20 }),
  });
  fc.assert(
    fc.property(given, ({ tokens, stretches }) => {
      const sources = new TextSources<string>();
      const perCharacter: string[] = [];
      for (const { length, source } of tokens) {
        perCharacter.push(...Array<string>(length).fill(source));
        sources.mark(perCharacter.length, source);
      }
      let at = 0;
      let slices: { text: string; start: number }[] = [];
      let expected: string[] = [];
      const compare = () => {
        const spans = sources.spans(slices);
        expect(spans.flatMap(([length, source]) => Array<string>(length).fill(source))).toEqual(expected);
        // Neighbours differ.
        expect(spans.every(([length, source], i) => length > 0 && source !== spans[i - 1]?.[1])).toBe(true);
        slices = [];
        expected = [];
      };
      for (const [length, isShown, isCut] of stretches) {
        const end = Math.min(at + length, perCharacter.length);
        if (isShown && end > at) {
          slices.push({ text: "x".repeat(end - at), start: at });
          expected.push(...perCharacter.slice(at, end));
        }
        at = end;
        if (isCut) compare();
      }
      compare();
    }),
  );
});

test("text without a source is an error of the caller", () => {
  const sources = new TextSources<string>();
  sources.mark(2, "d");
  expect(() => sources.spans([{ text: "abc", start: 0 }])).toThrow(RangeError);
});
