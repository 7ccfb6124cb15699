/**
 * The engine thread's counters for `/health`, which never queues behind a generation: what the thread answers in
 * PATIENCE_MS, else what it said last. At most one question is under way, however often `/health` is polled.
 */
import type { EngineClient } from "../engine/client.ts";
import type { EngineStats } from "../engine/protocol.ts";

/** An idle engine answers in well under a millisecond, a decoding one between two steps. */
const PATIENCE_MS = 20;

export class EngineCounters {
  private latest: EngineStats | null = null;
  private question: Promise<void> | null = null;

  constructor(private readonly engine: Pick<EngineClient, "stats">) {}

  /** Null while the engine has not answered yet, and after it has failed. */
  async read(): Promise<EngineStats | null> {
    this.question ??= this.engine
      .stats()
      .then(
        (stats) => {
          this.latest = stats;
        },
        () => {
          this.latest = null;
        },
      )
      .finally(() => {
        this.question = null;
      });
    await Promise.race([this.question, Bun.sleep(PATIENCE_MS)]);
    return this.latest;
  }
}
