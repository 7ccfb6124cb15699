/** Several async sources as one, with a bound on how many run. Left early, it ends them; it holds one value of each. */

/** Values of all sources as they come, at most `limit` sources running; a source's error ends everything. */
export function mergeBounded<T>(sources: readonly (() => AsyncGenerator<T>)[], limit: number): AsyncGenerator<T> {
  const [only] = sources;
  return sources.length === 1 && only !== undefined ? only() : mergeMany(sources, limit);
}

async function* mergeMany<T>(sources: readonly (() => AsyncGenerator<T>)[], limit: number): AsyncGenerator<T> {
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

function ignore(): undefined {
  return undefined;
}
