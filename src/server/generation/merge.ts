/**
 * Two combinators over async iterators: several sources at once with a bound, and a mark for silence. Both end their
 * sources when they are left early; neither holds more than one value per source.
 */

/** Values of all sources as they come, at most `limit` sources running; a source's error ends everything. */
export async function* mergeBounded<T>(
  sources: readonly (() => AsyncGenerator<T>)[],
  limit: number,
): AsyncGenerator<T> {
  const waiting = [...sources];
  const running = new Map<AsyncGenerator<T>, Promise<readonly [AsyncGenerator<T>, IteratorResult<T>]>>();
  const advance = (source: AsyncGenerator<T>) => {
    running.set(
      source,
      source.next().then((result) => [source, result] as const),
    );
  };
  const startNext = () => {
    const start = waiting.shift();
    if (start !== undefined) advance(start());
  };
  try {
    for (let i = 0; i < limit; i++) startNext();
    while (running.size > 0) {
      const [source, result] = await Promise.race(running.values());
      if (result.done === true) {
        running.delete(source);
        startNext();
      } else {
        advance(source);
        yield result.value;
      }
    }
  } finally {
    // A source may be in the middle of `next`: its end is asked for, its outcome no longer matters.
    for (const [source, pending] of running) {
      void pending.then(ignore, ignore);
      void source.return(undefined).then(ignore, ignore);
    }
  }
}

/** Yielded by `withSilence` whenever nothing came for the given time. */
export const SILENCE = Symbol("silence");

/** The source's values, and `SILENCE` each time `milliseconds` pass without one. 0 or less: never. */
export async function* withSilence<T>(
  source: AsyncGenerator<T>,
  milliseconds: number,
): AsyncGenerator<T | typeof SILENCE> {
  let next: Promise<IteratorResult<T>> | null = null;
  try {
    for (;;) {
      next ??= source.next();
      const result = milliseconds > 0 ? await orSilence(next, milliseconds) : await next;
      if (result === SILENCE) {
        yield SILENCE;
        continue;
      }
      next = null;
      if (result.done === true) return;
      yield result.value;
    }
  } finally {
    if (next !== null) void next.then(ignore, ignore);
    void source.return(undefined).then(ignore, ignore);
  }
}

async function orSilence<T>(next: Promise<T>, milliseconds: number): Promise<T | typeof SILENCE> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<typeof SILENCE>((resolve) => {
    timer = setTimeout(() => resolve(SILENCE), milliseconds);
  });
  try {
    return await Promise.race([next, silence]);
  } finally {
    clearTimeout(timer);
  }
}

function ignore(): undefined {
  return undefined;
}
