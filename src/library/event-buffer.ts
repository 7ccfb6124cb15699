/**
 * Events of a generation from its start until somebody reads them. Bounded: beyond the limit neighbouring texts become
 * one, after rounds and progress have been let go; no text and no id is ever lost. One reader.
 */
import type { GenerationEvent } from "./events.ts";

/** Events that wait for a reader who has not come. */
const WAITING_MAX = 4096;

export class EventBuffer {
  private waiting: GenerationEvent[] = [];
  private wake: (() => void) | null = null;
  private ended = false;
  private failure: { readonly error: unknown } | null = null;

  push(event: GenerationEvent): void {
    this.waiting.push(event);
    if (this.waiting.length > WAITING_MAX) this.shrink();
    this.wake?.();
  }

  /** No more events; `failure` is thrown to the reader behind those that wait. */
  end(failure: { readonly error: unknown } | null = null): void {
    this.ended = true;
    this.failure = failure;
    this.wake?.();
  }

  /** undefined: the end. Rejects with what `end` was given. */
  async next(): Promise<GenerationEvent | undefined> {
    for (;;) {
      const event = this.waiting.shift();
      if (event !== undefined) return event;
      if (this.failure !== null) throw this.failure.error;
      if (this.ended) return undefined;
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      this.wake = null;
    }
  }

  private shrink(): void {
    const kept: GenerationEvent[] = [];
    for (const event of this.waiting) {
      if (event.type === "round" || event.type === "prefill") continue;
      const last = kept.at(-1);
      if (event.type === "text" && last?.type === "text") {
        kept[kept.length - 1] = {
          type: "text",
          text: last.text + event.text,
          tokenIds: [...last.tokenIds, ...event.tokenIds],
        };
      } else if (event.type === "logprobs" && last?.type === "logprobs") {
        kept[kept.length - 1] = { type: "logprobs", entries: [...last.entries, ...event.entries] };
      } else kept.push(event);
    }
    this.waiting = kept;
  }
}
