/**
 * Streaming UTF-8: bytes in any cut → whole characters. Invariant: never half a character and never a lone surrogate;
 * a BOM is text. The machine is the WHATWG decoder (https://encoding.spec.whatwg.org/#utf-8-decoder); Bun's own
 * TextDecoder knows only one of the two ways of counting replacement characters that tokenizers need.
 */

/**
 * How ill-formed bytes are replaced: one U+FFFD for each maximal part of a character ("subpart", as Rust's
 * `from_utf8_lossy` and WHATWG do), or one for each byte ("byte", as byte-fallback vocabularies do).
 */
export type Replacement = "subpart" | "byte";

const REPLACEMENT_CHARACTER = "\uFFFD";

export class Utf8Decoder {
  readonly #replacement: Replacement;
  #codePoint = 0;
  /** Bytes of the open character seen, and still wanted. */
  #seen = 0;
  #wanted = 0;
  /** Bounds of the next continuation byte; narrower than 80…BF after E0, ED, F0 and F4. */
  #lower = 0x80;
  #upper = 0xbf;

  constructor(replacement: Replacement) {
    this.#replacement = replacement;
  }

  /** Text of all characters that `bytes` completes. */
  push(bytes: Uint8Array): string {
    let text = "";
    for (const byte of bytes) {
      if (this.#wanted > 0) {
        if (byte >= this.#lower && byte <= this.#upper) {
          this.#lower = 0x80;
          this.#upper = 0xbf;
          this.#codePoint = (this.#codePoint << 6) | (byte & 0x3f);
          this.#seen++;
          if (--this.#wanted === 0) {
            this.#seen = 0;
            text += String.fromCodePoint(this.#codePoint);
          }
          continue;
        }
        text += this.flush();
      }
      text += this.#start(byte);
    }
    return text;
  }

  /** Ends the text (or a run of bytes): what is still open becomes U+FFFD. The decoder is then as new. */
  flush(): string {
    if (this.#wanted === 0) return "";
    const count = this.#replacement === "byte" ? this.#seen : 1;
    this.#wanted = 0;
    this.#seen = 0;
    this.#lower = 0x80;
    this.#upper = 0xbf;
    return REPLACEMENT_CHARACTER.repeat(count);
  }

  #start(byte: number): string {
    if (byte < 0x80) return String.fromCharCode(byte);
    if (byte >= 0xc2 && byte <= 0xdf) return this.#open(byte & 0x1f, 1);
    if (byte >= 0xe0 && byte <= 0xef) {
      if (byte === 0xe0) this.#lower = 0xa0;
      if (byte === 0xed) this.#upper = 0x9f;
      return this.#open(byte & 0x0f, 2);
    }
    if (byte >= 0xf0 && byte <= 0xf4) {
      if (byte === 0xf0) this.#lower = 0x90;
      if (byte === 0xf4) this.#upper = 0x8f;
      return this.#open(byte & 0x07, 3);
    }
    return REPLACEMENT_CHARACTER;
  }

  #open(bits: number, wanted: number): string {
    this.#codePoint = bits;
    this.#seen = 1;
    this.#wanted = wanted;
    return "";
  }
}
