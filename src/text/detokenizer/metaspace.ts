/**
 * Decoder Metaspace: the replacement character stands for a blank; in the first token of a text every one is dropped
 * when the tokenizer prepends one ("first", "always"), as the Rust decoder does.
 */
import type { PieceStage } from "./piece.ts";

/** @param prepends whether the encoder puts the character before a text (prepend_scheme other than "never"). */
export function metaspace(replacement: string, prepends: boolean): PieceStage {
  return (piece, token) => {
    if (typeof piece !== "string") return piece;
    return piece.replaceAll(replacement, token.first && prepends ? "" : " ");
  };
}
