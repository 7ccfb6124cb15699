/**
 * Patience with a shaky line: up to five waits of 1, 2, 4, 8 and 16 s (± 20 %, so that many clients do not return in
 * step), counted anew after any progress. A server's own `Retry-After` replaces the wait and counts as one.
 */
import { setTimeout as delay } from "node:timers/promises";
import { TransientFault } from "./errors.ts";

export const RETRY_DELAYS_MS: readonly number[] = [1_000, 2_000, 4_000, 8_000, 16_000];

export class Retries {
  readonly #delaysMs: readonly number[];
  readonly #signal: AbortSignal | undefined;
  #failures = 0;

  constructor(delaysMs: readonly number[], signal: AbortSignal | undefined) {
    this.#delaysMs = delaysMs;
    this.#signal = signal;
  }

  progressed(): void {
    this.#failures = 0;
  }

  /** Waits before the next try. Rethrows what is not transient, and the final error when the patience is used up. */
  async wait(error: unknown): Promise<void> {
    if (!(error instanceof TransientFault)) throw error;
    const planned = this.#delaysMs[this.#failures++];
    if (planned === undefined) throw error.final;
    await abortable(error.waitMs ?? planned * (0.8 + 0.4 * Math.random()), this.#signal);
  }
}

/** Runs `work` until it succeeds, fails for good, or the patience is used up. */
export async function retrying<T>(
  work: () => Promise<T>,
  delaysMs: readonly number[],
  signal: AbortSignal | undefined,
): Promise<T> {
  const retries = new Retries(delaysMs, signal);
  for (;;) {
    try {
      return await work();
    } catch (error) {
      await retries.wait(error);
    }
  }
}

/** Waits `ms` milliseconds; throws the signal's own reason when it is aborted. */
export async function abortable(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await delay(ms, undefined, signal === undefined ? {} : { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}
