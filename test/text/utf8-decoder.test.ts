/** The streaming UTF-8 decoder against the platform's, in every cut. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { Utf8Decoder } from "../../src/text/utf8-decoder.ts";

/** Bytes that meet every branch: continuations, leads with narrow ranges, surrogates, overlong forms. */
const byte = fc.oneof(
  fc.constantFrom(0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe2, 0xed, 0xef, 0xf0),
  fc.constantFrom(0xf3, 0xf4, 0xf5, 0xff),
  fc.integer({ min: 0, max: 255 }),
);
const chunks = fc.array(fc.array(byte, { maxLength: 5 }), { maxLength: 8 });

function run(decoder: Utf8Decoder, chunks: readonly (readonly number[])[]): string {
  const pieces = [...chunks.map((chunk) => decoder.push(Uint8Array.from(chunk))), decoder.flush()];
  for (const piece of pieces) expect(piece.isWellFormed()).toBe(true);
  return pieces.join("");
}

test("equals the WHATWG decoder for all bytes and cuts", () => {
  const platform = new TextDecoder("utf-8", { ignoreBOM: true });
  fc.assert(
    fc.property(chunks, (chunks) => {
      expect(run(new Utf8Decoder("subpart"), chunks)).toBe(platform.decode(Uint8Array.from(chunks.flat())));
    }),
    { numRuns: 3000 },
  );
});

test("by bytes: the text shows every byte, whole characters as themselves", () => {
  fc.assert(
    fc.property(chunks, (chunks) => {
      const text = run(new Utf8Decoder("byte"), chunks);
      const bytes = [...text].map((c) => (c === "\ufffd" ? 1 : Buffer.byteLength(c)));
      const given = chunks.flat();
      const wholeReplacement = Buffer.from(given).includes(Buffer.from("\ufffd"));
      if (!wholeReplacement) expect(bytes.reduce((a, b) => a + b, 0)).toBe(given.length);
    }),
    { numRuns: 2000 },
  );
});

test("a character comes with its last byte, not before", () => {
  const decoder = new Utf8Decoder("subpart");
  const outs = [...new TextEncoder().encode("🙂")].map((byte) => decoder.push(Uint8Array.of(byte)));
  expect(outs).toEqual(["", "", "", "🙂"]);
});

test("a BOM is text", () => {
  expect(
    run(new Utf8Decoder("subpart"), [
      [0xef, 0xbb],
      [0xbf, 0x41],
    ]),
  ).toBe("\ufeffA");
});

test("a cut character at the end: one replacement, or one for each byte", () => {
  expect(run(new Utf8Decoder("subpart"), [[0xf0, 0x9f, 0x98]])).toBe("\ufffd");
  expect(run(new Utf8Decoder("byte"), [[0xf0, 0x9f, 0x98]])).toBe("\ufffd\ufffd\ufffd");
});

test("after flush the decoder is as new", () => {
  const decoder = new Utf8Decoder("byte");
  decoder.push(Uint8Array.of(0xe0));
  decoder.flush();
  expect(decoder.push(Uint8Array.of(0xc2, 0x80))).toBe("\u0080");
});
