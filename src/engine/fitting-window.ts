/** The context window that fits beside a loaded model (memory.md §5): `--context-window auto`. */
import { totalmem } from "node:os";
import { device } from "../mlx/native.ts";

/** Of the working set, what weights and caches may take. */
const BUDGET_SHARE = 0.9;
/** For a prompt's transients and everything else, in bytes. */
const HEADROOM_BYTES = 512 << 20;
/** Windows are told in steps of this many tokens. */
const STEP_TOKENS = 8192;
/** Rows beside the longest one are assumed to be at most this long. */
const NEIGHBOUR_TOKENS = 8192;
/** Share of the memory that Metal recommends to keep resident, where it does not say otherwise. */
const METAL_SHARE = 0.75;

/** Bytes that a model with all its state may take on this machine. */
export function workingSetBytes(): number {
  const memory = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
  return device === "metal" ? METAL_SHARE * memory : memory;
}

export interface Resident {
  /** Bytes of target and drafter. */
  readonly resident: number;
  readonly kvBytesPerToken: number;
  /** Rows computed at the same time. */
  readonly rows: number;
}

/** Tokens, a multiple of 8192 and at least that: a smaller window is of no use, and a larger one would not fit. */
export function fittingWindow({ resident, kvBytesPerToken, rows }: Resident, workingSet: number): number {
  const neighbours = (rows - 1) * NEIGHBOUR_TOKENS * kvBytesPerToken;
  const free = BUDGET_SHARE * workingSet - resident - neighbours - HEADROOM_BYTES;
  const steps = kvBytesPerToken > 0 ? Math.floor(free / kvBytesPerToken / STEP_TOKENS) : Number.POSITIVE_INFINITY;
  return Math.max(1, steps) * STEP_TOKENS;
}

/** A note when a full context would not fit beside the model; null when it would. */
export function contextNote(resident: Resident, windowTokens: number, workingSet: number): string | null {
  const gb = (bytes: number) => `${(bytes / 1e9).toFixed(1)} GB`;
  const state = windowTokens * resident.kvBytesPerToken;
  if (resident.resident + state <= BUDGET_SHARE * workingSet) return null;
  const free = BUDGET_SHARE * workingSet - resident.resident;
  const fits = Math.floor(free / resident.kvBytesPerToken / STEP_TOKENS) * STEP_TOKENS;
  const help =
    fits >= STEP_TOKENS
      ? `a context window of ${fits} fits`
      : "no useful context fits: take a smaller model or quantization";
  return (
    `a full context of ${windowTokens} tokens takes ${gb(state)} beside ${gb(resident.resident)} of weights, ` +
    `more than this machine's ${gb(workingSet)} hold; ${help}`
  );
}
