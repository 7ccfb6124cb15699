/**
 * The byte alphabet of GPT-2's byte-level vocabularies: each of the 256 bytes has one printable character (itself where
 * it is one, else U+0100 and up in order), so that a vocabulary of bytes can be written as strings.
 * Source: "Language Models are Unsupervised Multitask Learners" (2019), its `bytes_to_unicode`.
 */

function isPrintable(byte: number): boolean {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/** The character of each byte. */
export const BYTE_CHARACTERS: readonly string[] = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
})();

const BYTE_OF_CODE: ReadonlyMap<number, number> = new Map(
  BYTE_CHARACTERS.map((character, byte) => [character.charCodeAt(0), byte]),
);

const ENCODER = new TextEncoder();

/** Writes the UTF-8 bytes of `text` in the byte alphabet. */
export function toByteAlphabet(text: string): string {
  let out = "";
  for (const byte of ENCODER.encode(text)) out += BYTE_CHARACTERS[byte] ?? "";
  return out;
}

/** The bytes that `token` spells, or null when one of its characters is not of the alphabet. */
export function fromByteAlphabet(token: string): Uint8Array | null {
  const bytes = new Uint8Array(token.length);
  for (let i = 0; i < token.length; i++) {
    const byte = BYTE_OF_CODE.get(token.charCodeAt(i));
    if (byte === undefined) return null;
    bytes[i] = byte;
  }
  return bytes;
}
