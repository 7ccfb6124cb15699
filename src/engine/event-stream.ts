/** A single-consumer queue of events; `onLeave` runs once if the consumer leaves before the end. */
import type { EventSource } from "./client.ts";

const OVER: IteratorReturnResult<undefined> = { value: undefined, done: true };

export class EventStream<T> implements EventSource<T> {
  private readonly waiting: T[] = [];
  private taker: PromiseWithResolvers<IteratorResult<T>> | null = null;
  private sink: ((event: T) => void) | null = null;
  private ended = false;
  private error: Error | null = null;

  constructor(private readonly onLeave: () => void) {}

  push(event: T): void {
    if (this.ended) return;
    if (this.sink !== null) this.hand(event, this.sink);
    else if (this.taker === null) this.waiting.push(event);
    else this.take().resolve({ value: event, done: false });
  }

  /** No more events; what was pushed is still delivered. */
  end(error: Error | null = null): void {
    if (this.ended) return;
    this.ended = true;
    if (this.taker === null) this.error = error;
    else if (error !== null) this.take().reject(error);
    else this.take().resolve(OVER);
  }

  /** One consumer: not to be called again before it resolves. Not an async function, which would cost each token. */
  next(): Promise<IteratorResult<T>> {
    const event = this.waiting.shift();
    if (event !== undefined) return Promise.resolve({ value: event, done: false });
    const { error } = this;
    this.error = null;
    if (error !== null) return Promise.reject(error);
    if (this.ended) return Promise.resolve(OVER);
    this.taker = Promise.withResolvers();
    return this.taker.promise;
  }

  async each(sink: (event: T) => void): Promise<void> {
    this.sink = sink;
    for (const event of this.waiting.splice(0)) if (this.sink !== null) this.hand(event, sink);
    // Its end is told to `next`, as to a consumer that waits for one more event.
    await this.next();
  }

  /** Whoever pushes is not to blame for what the consumer does. */
  private hand(event: T, sink: (event: T) => void): void {
    try {
      sink(event);
    } catch (error) {
      const reason = error instanceof Error ? error : new Error(String(error));
      this.sink = null;
      if (this.ended) {
        this.error = reason;
        return;
      }
      this.end(reason);
      this.onLeave();
    }
  }

  /** Whoever waits, who then waits no more. */
  private take(): PromiseWithResolvers<IteratorResult<T>> {
    const taker = this.taker ?? Promise.withResolvers();
    this.taker = null;
    return taker;
  }

  async return(): Promise<IteratorResult<T>> {
    this.leave();
    return { value: undefined, done: true };
  }

  async throw(error?: unknown): Promise<IteratorResult<T>> {
    this.leave();
    throw error;
  }

  private leave(): void {
    this.waiting.length = 0;
    if (this.ended) return;
    this.ended = true;
    this.take().resolve(OVER);
    this.onLeave();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
