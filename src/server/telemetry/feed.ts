/**
 * Events for those who listen: each subscriber has a bounded queue, and what does not fit is dropped, newest first, so
 * that no reader, however slow, holds up a round. Without a subscriber an event is not even made.
 */

import { type Static, Type as t } from "@sinclair/typebox";
import { count, modeSchema, oneOf } from "../openapi/schemas.ts";
import type { RoundRecord } from "./round-log.ts";

/** Which API a request came through. */
const apiSchema = oneOf("chat", "completions", "messages", "responses");
const outcomeSchema = oneOf("stop", "length", "tool_calls", "error", "cancelled");

export type Api = Static<typeof apiSchema>;
export type Outcome = Static<typeof outcomeSchema>;

const time = t.Number({ description: "Milliseconds since the server started." });

export const prefillSchema = t.Object(
  {
    type: t.Literal("prefill"),
    req: t.String(),
    mode: modeSchema,
    processed: count,
    total: count,
    t: time,
    done: t.Optional(t.Literal(true)),
  },
  { $id: "PrefillEvent" },
);

export const requestSchema = t.Object(
  {
    type: oneOf("queued", "started", "finished"),
    req: t.String(),
    api: apiSchema,
    t: time,
    outcome: t.Optional(outcomeSchema),
  },
  { $id: "RequestEvent" },
);

/** An event of the stream: its SSE name and its data. */
export type FeedEvent =
  | { readonly name: "round"; readonly data: RoundRecord }
  | { readonly name: "prefill"; readonly data: Static<typeof prefillSchema> }
  | { readonly name: "request"; readonly data: Static<typeof requestSchema> };

/** admin-metrics.md §4. */
const QUEUE_MAX = 256;

export class Feed {
  private readonly subscribers = new Set<Subscription>();

  /** True when somebody listens: to be asked before an event is made. */
  get wanted(): boolean {
    return this.subscribers.size > 0;
  }

  publish(event: FeedEvent): void {
    for (const subscriber of this.subscribers) subscriber.push(event);
  }

  /** To be disposed by whoever listens. */
  subscribe(): Subscription {
    const subscription: Subscription = new Subscription(() => this.subscribers.delete(subscription));
    this.subscribers.add(subscription);
    return subscription;
  }

  /** Ends every subscription, after what is queued: the model has gone. */
  end(): void {
    for (const subscriber of this.subscribers) subscriber.end();
  }
}

export class Subscription implements Disposable {
  private readonly queue: FeedEvent[] = [];
  private wake: (() => void) | null = null;
  private over = false;

  constructor(private readonly leave: () => void) {}

  push(event: FeedEvent): void {
    if (this.over || this.queue.length >= QUEUE_MAX) return;
    this.queue.push(event);
    this.wake?.();
  }

  end(): void {
    this.over = true;
    this.wake?.();
  }

  /** What has come, at the latest after `milliseconds` (then empty); null: nothing more will come. */
  async take(milliseconds: number): Promise<readonly FeedEvent[] | null> {
    if (this.queue.length === 0 && !this.over) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, milliseconds);
      this.wake = resolve;
      await promise;
      clearTimeout(timer);
      this.wake = null;
    }
    if (this.queue.length === 0 && this.over) return null;
    return this.queue.splice(0);
  }

  [Symbol.dispose](): void {
    this.over = true;
    this.leave();
    this.wake?.();
  }
}
