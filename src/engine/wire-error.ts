/** A failed computation in the words of the protocol. */
import { ConstraintError } from "../decoding/constraint.ts";
import { MlxError } from "../mlx/error.ts";
import type { WireError } from "./protocol.ts";

export function wireError(error: unknown): WireError {
  if (error instanceof MlxError) return { kind: "internal", message: `computation failed: ${error.message}` };
  if (error instanceof ConstraintError) return { kind: error.kind, message: error.message };
  return { kind: "internal", message: error instanceof Error ? error.message : String(error) };
}
