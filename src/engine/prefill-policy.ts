/**
 * How much of a prompt goes into one step. Long chunks read the weights least often; but a step cannot be interrupted,
 * so a chunk is kept to what this machine computes in CHUNK_MS alone, or in SHARED_MS while other rows wait for tokens.
 */

const CHUNK_MAX = 2048;
const CHUNK_MIN = 32;
const FIRST_CHUNK = 128;
/** Longest time that a cancel waits, and that other rows wait, for a chunk. */
const CHUNK_MS = 1000;
const SHARED_MS = 150;
const SMOOTHING = 0.5;

export class PrefillPolicy {
  private msPerToken: number | null = null;

  /** Tokens of the next chunk of a prompt with `remaining` tokens to go. */
  chunk(remaining: number, shared: boolean): number {
    if (this.msPerToken === null) return Math.min(remaining, FIRST_CHUNK);
    const fitting = (shared ? SHARED_MS : CHUNK_MS) / this.msPerToken;
    const rounded = Math.floor(fitting / CHUNK_MIN) * CHUNK_MIN;
    return Math.min(remaining, Math.max(CHUNK_MIN, Math.min(CHUNK_MAX, rounded)));
  }

  /** Learns from a chunk of `tokens` that took `ms`. */
  measured(tokens: number, ms: number): void {
    if (tokens < CHUNK_MIN) return;
    const rate = ms / tokens;
    this.msPerToken = this.msPerToken === null ? rate : this.msPerToken + SMOOTHING * (rate - this.msPerToken);
  }
}
