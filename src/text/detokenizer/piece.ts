/**
 * What a decoder makes of one token: a string, or bytes that may be a part of a character. A stage maps pieces to
 * pieces and keeps no state; what needs state (joining bytes, stripping the ends of the text) is in `detokenizer.ts`.
 */
export type Piece = string | Uint8Array;

export interface TokenFacts {
  /** The token is an added one: its content is text, never bytes in an alphabet. */
  readonly added: boolean;
  /** It is the first token of a text and the rules for first tokens apply. */
  readonly first: boolean;
}

export type PieceStage = (piece: Piece, token: TokenFacts) => Piece;
