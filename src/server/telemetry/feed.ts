/**
 * Events for those who listen: each subscriber has a bounded queue, and what does not fit is dropped, newest first, so
 * that no reader, however slow, holds up a round. Without a subscriber an event is not even made.
 */

/** An event of the stream: its SSE name and its data. */
export interface FeedEvent {
  readonly name: "round" | "prefill" | "request";
  readonly data: object;
}

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
