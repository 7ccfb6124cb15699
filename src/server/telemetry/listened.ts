/** An async iterator with somebody who listens: one promise a value, where a generator around it would be several. */

export interface Listener<T> {
  readonly value: (value: T) => void;
  readonly error?: () => void;
  /** Once, when it ended, failed or was left. */
  readonly end?: () => void;
}

export function listened<T>(source: AsyncIterator<T>, listener: Listener<T>): AsyncGenerator<T> {
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
  return {
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
