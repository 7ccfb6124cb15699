/**
 * Token ids → text, one id at a time. Invariant: the pieces joined are the decoding of all ids (special tokens
 * included: which ids are not text is the caller's knowledge), and no piece ends inside a character.
 * Byte-fallback vocabularies give a character as soon as it is whole and one U+FFFD for each byte that fits nowhere.
 */
import { Utf8Decoder } from "../utf8-decoder.ts";
import type { TokenDecoder } from "./create.ts";
import type { Piece, TokenFacts } from "./piece.ts";
import { StripFilter } from "./strip.ts";

/** What the detokenizer asks of a vocabulary. */
export interface TokenTable {
  /** The token's string; undefined for ids that the tokenizer does not have. */
  token(id: number): string | undefined;
  isAdded(id: number): boolean;
}

export class Detokenizer {
  readonly #table: TokenTable;
  readonly #decoder: TokenDecoder;
  readonly #utf8: Utf8Decoder;
  readonly #strip: StripFilter | null;
  #first: boolean;

  /**
   * @param atTextStart apply the rules for a text's beginning (dropping the blank that encoding put there). False for
   * a completion: it continues the prompt.
   */
  constructor(table: TokenTable, decoder: TokenDecoder, { atTextStart }: { atTextStart: boolean }) {
    this.#table = table;
    this.#decoder = decoder;
    this.#first = atTextStart;
    this.#utf8 = new Utf8Decoder(decoder.replacement);
    const strip = decoder.strip;
    this.#strip = strip && new StripFilter(strip.character, atTextStart ? strip.start : 0, strip.stop);
  }

  /** The text that `id` completes; "" while a character is open and for ids outside the vocabulary. */
  push(id: number): string {
    const token = this.#table.token(id);
    if (token === undefined) return "";
    const piece = pieceOf(this.#decoder, token, { added: this.#table.isAdded(id), first: this.#first });
    this.#first = false;
    const text = typeof piece === "string" ? this.#utf8.flush() + piece.toWellFormed() : this.#utf8.push(piece);
    return this.#strip === null ? text : this.#strip.push(text);
  }

  /** The end of the text: an open character becomes U+FFFD. */
  flush(): string {
    const text = this.#utf8.flush();
    return this.#strip === null ? text : this.#strip.push(text) + this.#strip.flush();
  }
}

/** One token through all stages of the decoder. */
export function pieceOf(decoder: TokenDecoder, token: string, facts: TokenFacts): Piece {
  let piece: Piece = token;
  for (const stage of decoder.stages) piece = stage(piece, facts);
  return piece;
}
