/**
 * The life of a command that runs the engine: its thread, Ctrl-C, and the end of both. The first Ctrl-C aborts the
 * session's signal, the second ends the process without waiting for anything.
 */
import type { EngineClient } from "../engine/client.ts";
import { endEngine } from "./end-engine.ts";
import { type CliIo, STOP_SIGNALS } from "./io.ts";

/** Exit code after Ctrl-C. */
export const INTERRUPTED = 130;
/** After Ctrl-C nobody waits for a load that cannot be stopped in the middle. */
const INTERRUPT_GRACE_MS = 500;

export interface EngineSession {
  readonly engine: EngineClient;
  /** Aborted by the first Ctrl-C or SIGTERM. */
  readonly signal: AbortSignal;
}

/** Runs `work` with an engine of its own; resolves to its exit code when the engine has ended. */
export async function withEngine(io: CliIo, work: (session: EngineSession) => Promise<number>): Promise<number> {
  const interrupt = new AbortController();
  const unlisten = io.onSignal(STOP_SIGNALS, () => {
    if (interrupt.signal.aborted) io.exitNow(INTERRUPTED);
    interrupt.abort();
  });
  const engine = io.spawnEngine();
  try {
    return await work({ engine, signal: interrupt.signal });
  } finally {
    unlisten();
    await endEngine(engine, interrupt.signal.aborted ? INTERRUPT_GRACE_MS : undefined);
  }
}

/** The work's result, or null as soon as the signal comes; the engine's shutdown then ends the work. */
export async function unlessInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | null> {
  const interrupted = new Promise<null>((resolve) => {
    if (signal.aborted) resolve(null);
    signal.addEventListener("abort", () => resolve(null), { once: true });
  });
  // Once interrupted, how the load ends is of no interest.
  void work.catch(() => undefined);
  return Promise.race([work, interrupted]);
}
