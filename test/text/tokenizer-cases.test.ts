/** Ids and texts of the Rust library, for every pipeline kind, one id at a time. */
import { describe, expect, test } from "bun:test";
import { CASES, decode, fixtureTokenizer, KINDS, tokenizerJson } from "./fixtures.ts";

/** Kinds whose decoder is ByteFallback: Rust spoils a whole run of bytes for one bad byte, we only that byte. */
const BYTE_FALLBACK = new Set(["gemma", "llama2"]);

describe.each([...KINDS])("%s", (kind) => {
  const tokenizer = fixtureTokenizer(kind);
  const expected = CASES.tokenizers[kind];

  test("encodes all texts to Rust's ids", () => {
    for (const [i, text] of CASES.cases.entries()) {
      expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual([...(expected.ids[i] ?? [])]);
    }
  });

  test("gives the same ids a second time, from its caches", () => {
    const again = CASES.cases.map((text) => tokenizer.encode(text, { addSpecialTokens: false }));
    expect(again).toEqual(expected.ids.map((ids) => [...ids]));
  });

  test("decodes them to Rust's texts, id by id", () => {
    for (const [i, ids] of expected.ids.entries()) {
      expect(decode(tokenizer, ids, true)).toBe(expected.text[i] ?? "");
    }
  });

  test("decodes random ids to Rust's texts", () => {
    let differing = 0;
    for (const [i, ids] of expected.random_ids.entries()) {
      const text = decode(tokenizer, ids, true);
      const rust = expected.random_text[i] ?? "";
      if (text === rust) continue;
      expect(BYTE_FALLBACK.has(kind)).toBe(true);
      // The one accepted difference: we show a whole character where Rust shows a U+FFFD for each of its bytes.
      expect(spoil(text, rust)).toBe(rust);
      differing++;
    }
    expect(differing).toBeLessThanOrEqual(12);
  });

  test("takes its byte tokens from the vocabulary", () => {
    const bytes = expected.ids.flatMap((ids) => ids.map((id) => tokenizer.tokenBytes(id).length));
    expect(Math.min(...bytes)).toBeGreaterThan(0);
  });

  test("knows its size", () => {
    const vocab = tokenizerJson(kind).model;
    const model = typeof vocab === "object" && vocab !== null && "vocab" in vocab ? vocab.vocab : null;
    expect(tokenizer.vocabSize).toBe(Object.keys(model ?? {}).length + 7);
  });
});

/** `text` with those characters as one U+FFFD per byte that `rust` does not show. */
function spoil(text: string, rust: string): string {
  let out = "";
  for (const character of text) {
    const shown = rust.startsWith(character, out.length);
    out += shown ? character : "\ufffd".repeat(Buffer.byteLength(character));
  }
  return out;
}
