/** The text chain of one row, on its own: whatever the cuts, text and tokens come out whole and in order. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import type { TokenLogprob } from "../../src/engine/protocol.ts";
import type { ChoiceToken } from "../../src/server/generation/events.ts";
import { mergeBounded } from "../../src/server/generation/merge.ts";
import { ChoiceText } from "../../src/text/choice-text.ts";
import { StopMatcher } from "../../src/text/stop-strings.ts";
import { ByteText } from "./byte-text.ts";
import { EOS } from "./scripted-engine.ts";

const RUN = { seed: 20_261_129, numRuns: 500 };
const text = fc.string({ unit: fc.constantFrom("a", "b", "c", "é", "€", "😀"), maxLength: 20 });
const stop = fc.string({ unit: fc.constantFrom("a", "b", "c", "é", "😀"), minLength: 1, maxLength: 3 });
const silent = new Set([EOS]);

interface Outcome {
  readonly pieces: readonly string[];
  readonly carried: readonly (readonly ChoiceToken[])[];
  readonly rest: readonly ChoiceToken[];
  readonly chain: ChoiceText<TokenLogprob>;
}

function run(ids: readonly number[], stops: readonly string[], step: number): Outcome {
  const chain = new ChoiceText<TokenLogprob>(new ByteText().detokenizer(), new StopMatcher(stops), silent);
  const pieces: string[] = [];
  const carried: (readonly ChoiceToken[])[] = [];
  const take = (released: { readonly text: string; readonly tokens: readonly ChoiceToken[] }) => {
    pieces.push(released.text);
    carried.push(released.tokens);
    if (released.text === "") expect(released.tokens).toEqual([]);
  };
  for (let i = 0; i < ids.length && chain.stopString === null; i += step)
    take(chain.push(ids.slice(i, i + step), null));
  take(chain.finish());
  return { pieces, carried, rest: chain.rest(), chain };
}

/** Where the answer has to end: before the earliest stop string, the shortest of those that start there. */
function expected(whole: string, stops: readonly string[]): { shown: string; end: number } {
  const found = stops
    .map((s) => ({ start: whole.indexOf(s), end: whole.indexOf(s) + s.length }))
    .filter(({ start }) => start >= 0)
    .sort((a, b) => a.start - b.start || a.end - b.end)[0];
  return found === undefined
    ? { shown: whole, end: whole.length }
    : { shown: whole.slice(0, found.start), end: found.end };
}

test("text ends before the earliest match, and the count at the token that completed it", () => {
  fc.assert(
    fc.property(text, fc.array(stop, { maxLength: 3 }), fc.integer({ min: 1, max: 9 }), (whole, stops, step) => {
      const bytes = [...new TextEncoder().encode(whole), EOS];
      const { pieces, carried, rest, chain } = run(bytes, stops, step);
      const { shown, end } = expected(whole, stops);
      const stopped = shown !== whole;
      expect(pieces.join("")).toBe(shown);
      expect(pieces.every((piece) => piece.isWellFormed())).toBe(true);
      const counted = stopped ? new TextEncoder().encode(whole.slice(0, end)).length : bytes.length;
      expect(chain.completionTokens).toBe(counted);
      const all = [...carried.flat(), ...rest];
      expect(all.map((token) => token.id)).toEqual(bytes.slice(0, counted));
      // Visible tokens are exactly those of the shown text.
      const visible = all.filter((token) => token.visible).map((token) => token.id);
      expect(visible).toEqual([...new TextEncoder().encode(shown)]);
    }),
    RUN,
  );
});

test("without stop strings a piece carries exactly its own tokens, with offsets in code points", () => {
  fc.assert(
    fc.property(text, fc.integer({ min: 1, max: 9 }), (whole, step) => {
      const { pieces, carried } = run([...new TextEncoder().encode(whole)], [], step);
      let offset = 0;
      pieces.forEach((piece, i) => {
        const tokens = carried[i] ?? [];
        if (piece === "") return;
        expect(new TextDecoder().decode(Uint8Array.from(tokens, (token) => token.id))).toBe(piece);
        expect(tokens[0]?.offset).toBe(offset);
        offset += [...piece].length;
      });
    }),
    RUN,
  );
});

test("merging keeps each source's order, ends all on an error, and respects the bound", async () => {
  let open = 0;
  let most = 0;
  const source = (name: string, count: number, fails = false) =>
    async function* () {
      open += 1;
      most = Math.max(most, open);
      try {
        for (let i = 0; i < count; i++) {
          await Bun.sleep(1);
          yield `${name}${i}`;
        }
        if (fails) throw new Error("broken");
      } finally {
        open -= 1;
      }
    };
  const seen: string[] = [];
  for await (const value of mergeBounded([source("a", 3), source("b", 2), source("c", 2)], 2)) seen.push(value);
  for (const name of ["a", "b", "c"])
    expect(seen.filter((v) => v[0] === name)).toEqual(seen.filter((v) => v[0] === name).sort());
  expect(seen.length).toBe(7);
  expect(most).toBe(2);
  const failing = async () => {
    for await (const value of mergeBounded([source("a", 100), source("b", 2, true)], 2)) seen.push(value);
  };
  await expect(failing()).rejects.toThrow("broken");
  await Bun.sleep(10);
  expect(open).toBe(0);
});
