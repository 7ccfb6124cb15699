/** Ends the engine's thread, but not for ever: a thread in the middle of a long call answers only after it. */
import type { EngineClient } from "../engine/client.ts";

/** Beyond the drain time; the process is about to end and takes the thread with it. */
export const SHUTDOWN_GRACE_MS = 5000;

export async function endEngine(engine: EngineClient, graceMs = SHUTDOWN_GRACE_MS): Promise<void> {
  const patience = Promise.withResolvers<void>();
  const timer = setTimeout(patience.resolve, graceMs);
  try {
    await Promise.race([engine.shutdown(0), patience.promise]);
  } finally {
    clearTimeout(timer);
  }
}
