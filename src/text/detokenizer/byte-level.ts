/**
 * Decoder ByteLevel: a token is bytes in the GPT-2 alphabet. An added token, or one with a character outside the
 * alphabet, is its own UTF-8.
 */
import { fromByteAlphabet } from "../byte-alphabet.ts";
import type { PieceStage } from "./piece.ts";

const ENCODER = new TextEncoder();

export const byteLevel: PieceStage = (piece, token) => {
  if (typeof piece !== "string") return piece;
  return (token.added ? null : fromByteAlphabet(piece)) ?? ENCODER.encode(piece);
};
