/** The incremental detokenizer: kinds of decoders, first-token rules, and what may never come out. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { createTokenDecoder } from "../../../src/text/detokenizer/create.ts";
import { Detokenizer, type TokenTable } from "../../../src/text/detokenizer/detokenizer.ts";
import { TokenizerError } from "../../../src/text/tokenizer-error.ts";
import type { JsonObject } from "../../../src/text/tokenizer-json.ts";
import { CASES, decode, fixtureTokenizer, KINDS } from "../fixtures.ts";

const REPLACE: JsonObject = { type: "Replace", pattern: { String: "▁" }, content: " " };
const FALLBACK: JsonObject = { type: "Sequence", decoders: [REPLACE, { type: "ByteFallback" }, { type: "Fuse" }] };

/** A detokenizer over a list of tokens; those from `added` on are added ones. */
function over(tokens: readonly string[], config: JsonObject, { atTextStart = false, added = tokens.length } = {}) {
  const table: TokenTable = { token: (id) => tokens[id], isAdded: (id) => id >= added };
  return new Detokenizer(table, createTokenDecoder(config), { atTextStart });
}

function pieces(detokenizer: Detokenizer, ids: readonly number[]): string[] {
  return [...ids.map((id) => detokenizer.push(id)), detokenizer.flush()];
}

describe.each([...KINDS])("%s", (kind) => {
  const tokenizer = fixtureTokenizer(kind);

  test("any ids give whole characters only, and as many as one decoding", () => {
    const id = fc.integer({ min: 0, max: tokenizer.vocabSize + 3 });
    fc.assert(
      fc.property(fc.array(id, { maxLength: 30 }), (ids) => {
        const bytes = ids.map((id) => tokenizer.tokenBytes(id));
        const text = decode(tokenizer, ids, false); // throws for half a character
        const joined = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat(bytes));
        expect(text.replaceAll("\ufffd", "")).toBe(joined.replaceAll("\ufffd", ""));
      }),
      { numRuns: 500 },
    );
  });

  test("a token's bytes, joined, are the text that it is a part of", () => {
    for (const [i, ids] of CASES.tokenizers[kind].ids.entries()) {
      const text = decode(tokenizer, ids, false);
      expect(Buffer.concat(ids.map((id) => tokenizer.tokenBytes(id))).toString()).toBe(text);
      if (kind !== "metaspace") expect(text.endsWith(CASES.tokenizers[kind].text[i] ?? "?")).toBe(true);
    }
  });
});

describe("ByteLevel", () => {
  const config: JsonObject = { type: "ByteLevel" };

  test("an emoji over four tokens comes whole, with the last", () => {
    expect(pieces(over(["ð", "Ł", "Ļ", "Ĥ"], config), [0, 1, 2, 3])).toEqual(["", "", "", "🙂", ""]);
  });

  test("▁ is text, and so is a BOM", () => {
    expect(pieces(over(["âĸģ", "ï»¿"], config), [0, 1])).toEqual(["▁", "\ufeff", ""]);
  });

  test("an added token and one outside the alphabet are their own text", () => {
    const detokenizer = over(["<｜begin▁of｜>", "é"], config, { added: 1 });
    expect(pieces(detokenizer, [0, 1])).toEqual(["<｜begin▁of｜>", "é", ""]);
  });

  test("an open character before an added token is replaced", () => {
    expect(pieces(over(["ð", "<eot>"], config, { added: 1 }), [0, 1, 0])).toEqual(["", "\ufffd<eot>", "", "\ufffd"]);
  });

  test("ids without a token are nothing and do not end a character", () => {
    expect(pieces(over(["Ã", "©"], config), [0, 99, 1])).toEqual(["", "", "é", ""]);
  });
});

describe("ByteFallback", () => {
  const tokens = ["▁a", "<0xC3>", "<0xA9>", "<0xFF>", "b"];

  test("a character comes with its last byte", () => {
    expect(pieces(over(tokens, FALLBACK), [0, 1, 2, 4])).toEqual([" a", "", "é", "b", ""]);
  });

  test("bad bytes are one replacement each and spoil no neighbour", () => {
    expect(pieces(over(tokens, FALLBACK), [1, 2, 3, 1, 4])).toEqual(["", "é", "\ufffd", "", "\ufffdb", ""]);
  });

  test("a byte token is one byte", () => {
    const tokenizer = fixtureTokenizer("gemma");
    const id = tokenizer.tokenId("<0xE2>");
    expect([...tokenizer.tokenBytes(id ?? -1)]).toEqual([0xe2]);
    expect(tokenizer.tokenText(id ?? -1)).toBe("\ufffd");
  });
});

describe("rules for the beginning", () => {
  const strip = (start: number, stop: number): JsonObject => ({
    type: "Sequence",
    decoders: [REPLACE, { type: "Fuse" }, { type: "Strip", content: " ", start, stop }],
  });
  const tokens = ["▁a", "▁", "b▁▁"];

  test("Strip takes the blank of a whole text, not of a completion", () => {
    expect(pieces(over(tokens, strip(1, 0), { atTextStart: true }), [0, 0])).toEqual(["a", " a", ""]);
    expect(pieces(over(tokens, strip(1, 0)), [0, 0])).toEqual([" a", " a", ""]);
  });

  test("Strip at the start goes on over several tokens", () => {
    expect(pieces(over(tokens, strip(2, 0), { atTextStart: true }), [1, 1, 1, 0])).toEqual(["", "", " ", " a", ""]);
  });

  test("Strip at the end holds back what it may take", () => {
    expect(pieces(over(tokens, strip(0, 1)), [2, 0, 2])).toEqual(["b ", "  a", "b ", ""]);
  });

  test("Metaspace drops every mark of the first token, unless it never prepends", () => {
    const config = (prepend_scheme: string): JsonObject => ({ type: "Metaspace", replacement: "▁", prepend_scheme });
    expect(pieces(over(tokens, config("first"), { atTextStart: true }), [2, 2])).toEqual(["b", "b  ", ""]);
    expect(pieces(over(tokens, config("first")), [2, 2])).toEqual(["b  ", "b  ", ""]);
    expect(pieces(over(tokens, config("never"), { atTextStart: true }), [2, 2])).toEqual(["b  ", "b  ", ""]);
  });
});

describe("refusals", () => {
  const cases: readonly [string, JsonObject | null, RegExp][] = [
    ["no decoder", null, /no decoder/],
    ["WordPiece", { type: "WordPiece" }, /WordPiece/],
    ["CTC", { type: "CTC" }, /CTC/],
    ["a member of a sequence", { type: "Sequence", decoders: [{ type: "BPEDecoder" }] }, /BPEDecoder/],
    ["a pattern", { type: "Replace", pattern: { Regex: "a+" }, content: "" }, /Replace/],
    [
      "Strip before Fuse",
      { type: "Sequence", decoders: [{ type: "Strip", content: " ", start: 1, stop: 0 }] },
      /Strip/,
    ],
    ["Replace after bytes", { type: "Sequence", decoders: [{ type: "ByteFallback" }, REPLACE] }, /Replace/],
  ];
  test.each(cases)("%s", (_name, config, message) => {
    expect(() => createTokenDecoder(config)).toThrow(TokenizerError);
    expect(() => createTokenDecoder(config)).toThrow(message);
  });
});
