/** A source of events with somebody who listens: one promise a value, where a generator around it would be several. */
import type { EventSource } from "../../engine/client.ts";

export interface Listener<T> {
  readonly value: (value: T) => void;
  readonly error?: () => void;
  /** Once, when it ended, failed or was left. */
  readonly end?: () => void;
}

export function listened<T>(
  source: Pick<EventSource<T>, "next" | "return" | "each">,
  listener: Listener<T>,
): AsyncGenerator<T> & Pick<EventSource<T>, "each"> {
  let over = false;
  const end = () => {
    if (!over) listener.end?.();
    over = true;
  };
  const seen = (result: IteratorResult<T>): IteratorResult<T> => {
    if (result.done === true) end();
    else listener.value(result.value);
    return result;
  };
  const failed = (error: unknown): never => {
    listener.error?.();
    end();
    throw error;
  };
  const left = (): Promise<IteratorResult<T>> => {
    end();
    return source.return?.() ?? Promise.resolve({ value: undefined, done: true });
  };
  const each = (sink: (event: T) => void) => {
    const both = (event: T) => {
      listener.value(event);
      sink(event);
    };
    return source.each?.(both).then(end, failed) ?? Promise.reject(new TypeError("the source hands nothing over"));
  };
  return {
    ...(source.each !== undefined && { each }),
    next: () => source.next().then(seen, failed),
    return: left,
    throw: (error) => left().then(() => Promise.reject(error)),
    [Symbol.asyncIterator]() {
      return this;
    },
    [Symbol.asyncDispose]: async () => {
      await left();
    },
  };
}
