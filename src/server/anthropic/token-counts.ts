/**
 * Lengths of prompts for `count_tokens` (http-anthropic.md §5). Off the queue of generations, one prompt at a time:
 * encoding gives the thread away between slices, and many of them at once would add their slices up between two frames of a
 * stream. What was counted is remembered by a hash, as long as its model is loaded.
 */
import { stringifyJson } from "../../text/json-numbers.ts";
import { clientClosed, queueFull } from "../errors.ts";
import type { GenerationRequest } from "../generation/request.ts";
import type { GenerationService } from "../generation/service.ts";

/** A screen of Claude Code asks for 26 at once and again whenever it is opened; an entry is a hash and a number. */
const REMEMBERED = 1024;

/** Bound on bodies held while they wait: several bursts of 50 clients at once. */
const WAITING_MAX = 512;

/** The part of the service that is used here. */
export type PromptEncoder = Pick<GenerationService, "loaded" | "promptIds">;

export class TokenCounts {
  /** Least recently used first. */
  private counts = new Map<string, number>();
  private countsOf: object | null = null;
  private last: Promise<unknown> = Promise.resolve();
  private waiting = 0;

  constructor(private readonly service: PromptEncoder) {}

  /** Tokens of the request's prompt. Rejects with `RequestError`: 503 without a model, 400, 429. */
  async count(request: GenerationRequest, signal: AbortSignal): Promise<number> {
    const key = keyOf(request);
    const known = this.known(key);
    if (known !== null) return known;
    if (this.waiting >= WAITING_MAX) throw queueFull("too many prompts wait to be counted; try again in a moment");
    this.waiting += 1;
    const turn = this.last.then(() => this.encode(key, request, signal));
    this.last = turn.catch(() => undefined);
    try {
      return await turn;
    } finally {
      this.waiting -= 1;
    }
  }

  private async encode(key: string, request: GenerationRequest, signal: AbortSignal): Promise<number> {
    if (signal.aborted) throw clientClosed();
    // The same prompt may have been counted while this one waited.
    const known = this.known(key);
    if (known !== null) return known;
    const { text } = this.service.loaded();
    const prompts = await this.service.promptIds(request, signal);
    const count = prompts.reduce((sum, ids) => sum + ids.length, 0);
    if (text === this.countsOf) this.remember(key, count);
    return count;
  }

  private known(key: string): number | null {
    const { text } = this.service.loaded();
    if (text !== this.countsOf) {
      this.counts = new Map();
      this.countsOf = text;
    }
    const count = this.counts.get(key);
    if (count !== undefined) this.remember(key, count);
    return count ?? null;
  }

  private remember(key: string, count: number): void {
    this.counts.delete(key);
    this.counts.set(key, count);
    const [oldest] = this.counts.keys();
    if (this.counts.size > REMEMBERED && oldest !== undefined) this.counts.delete(oldest);
  }
}

/** Everything of a request that its prompt is made of, and the day: some templates print it. */
function keyOf({ prompt, toolPolicy, reasoning, format }: GenerationRequest): string {
  const hash = new Bun.CryptoHasher("sha256");
  // Not `JSON.stringify`, to which two schemas are one whose members stand in another order.
  hash.update(stringifyJson([new Date().toDateString(), prompt, toolPolicy, reasoning, format]));
  return hash.digest("base64");
}
