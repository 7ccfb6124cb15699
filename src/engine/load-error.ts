/** Why a load failed, in the words of the protocol: what was wrong with the wish, what was given up, and the rest. */
import { CheckpointError } from "../checkpoint/errors.ts";
import { HubError } from "../hub/errors.ts";
import type { WireError } from "./protocol.ts";

/** @param signal the load's own: what fails after it was aborted failed because of that */
export function loadError(error: unknown, signal: AbortSignal): WireError {
  const message = error instanceof Error ? error.message : String(error);
  if (signal.aborted || (error instanceof HubError && error.kind === "cancelled")) {
    return { kind: "load_cancelled", message };
  }
  return { kind: isRefusal(error) ? "load_refused" : "load", message };
}

/** True when the same wish would be refused again: nothing on this machine or of the network is to blame. */
export function isRefusal(error: unknown): boolean {
  if (error instanceof HubError) return error.kind === "bad_name" || error.kind === "not_found";
  return error instanceof CheckpointError && error.check === "remote-code";
}
