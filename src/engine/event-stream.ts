/** A single-consumer queue of events as an async iterator; `onLeave` runs once if the consumer leaves before the end. */
export class EventStream<T> implements AsyncIterableIterator<T> {
  private readonly waiting: T[] = [];
  private wake: (() => void) | null = null;
  private ended = false;
  private error: Error | null = null;

  constructor(private readonly onLeave: () => void) {}

  push(event: T): void {
    if (this.ended) return;
    this.waiting.push(event);
    this.wake?.();
  }

  /** No more events; what was pushed is still delivered. */
  end(error: Error | null = null): void {
    if (this.ended) return;
    this.ended = true;
    this.error = error;
    this.wake?.();
  }

  async next(): Promise<IteratorResult<T>> {
    for (;;) {
      const event = this.waiting.shift();
      if (event !== undefined) return { value: event, done: false };
      if (this.ended) {
        const error = this.error;
        this.error = null;
        if (error !== null) throw error;
        return { value: undefined, done: true };
      }
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      this.wake = null;
    }
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
    this.wake?.();
    this.onLeave();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
