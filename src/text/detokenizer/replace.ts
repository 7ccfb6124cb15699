/** Decoder Replace: a literal string is replaced in each token (`▁` by a blank in SentencePiece vocabularies). */
import type { PieceStage } from "./piece.ts";

/** @param pattern literal, not a regular expression. */
export function replace(pattern: string, content: string): PieceStage {
  return (piece) => (typeof piece === "string" ? piece.replaceAll(pattern, () => content) : piece);
}
