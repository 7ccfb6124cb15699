/** Decoder ByteFallback: a token `<0xNN>` is the byte NN, every other one is text. */
import type { PieceStage } from "./piece.ts";

const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/;

/** The byte that a token of the form `<0xNN>` stands for, else null. */
export function byteOfToken(token: string): number | null {
  const digits = BYTE_TOKEN.exec(token)?.[1];
  return digits === undefined ? null : Number.parseInt(digits, 16);
}

export const byteFallback: PieceStage = (piece) => {
  if (typeof piece !== "string") return piece;
  const byte = byteOfToken(piece);
  return byte === null ? piece : Uint8Array.of(byte);
};
