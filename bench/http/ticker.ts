/**
 * The scripted engine's clock: once all streams of a burst are there, every tick gives each of them one token, all at the
 * same moment, as a batch of rows does. Keeps when each tick was.
 */
import { EventStream } from "../../src/engine/event-stream.ts";
import { monotonicNanoseconds } from "./monotonic.ts";

/** A small model's step. */
export const TICK_MS = 10;

export class Ticker<T> {
  private streams: EventStream<T>[] = [];
  /** Nanoseconds of each tick of the newest burst. */
  times: number[] = [];

  /** @param event of a tick, 0 … tokens − 1, and what ends a stream */
  constructor(
    private readonly tokens: number,
    private readonly event: (tick: number) => T,
    private readonly last: () => readonly T[],
  ) {}

  /** The events of one stream; they begin when `expected` streams are there. */
  join(expected: number): EventStream<T> {
    const stream = new EventStream<T>(() => undefined);
    this.streams.push(stream);
    if (this.streams.length === expected) this.run(this.streams.splice(0));
    return stream;
  }

  private run(streams: readonly EventStream<T>[]): void {
    this.times = [];
    const timer = setInterval(() => {
      const tick = this.times.length;
      this.times.push(monotonicNanoseconds());
      for (const stream of streams) stream.push(this.event(tick));
      if (tick + 1 < this.tokens) return;
      clearInterval(timer);
      for (const stream of streams) {
        for (const event of this.last()) stream.push(event);
        stream.end();
      }
    }, TICK_MS);
  }
}
