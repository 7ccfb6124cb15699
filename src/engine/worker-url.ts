/**
 * Where the workers' code is: `new Worker(workerUrl())`. In development it lies below this folder. In the executable
 * every module's `import.meta.url` is that of the root, `tools/build/executable.ts` puts the workers there under their
 * own names (entry naming without folders), and Bun maps `.ts` to the bundled `.js`.
 */
export function workerUrl(): URL {
  return new URL("./worker.ts", import.meta.url);
}

/** As above; the folder is that of the sources only. */
export function grammarWorkerUrl(): URL {
  const compiled = import.meta.url.includes("$bunfs") || import.meta.url.includes("~BUN");
  return new URL(compiled ? "./grammar-worker.ts" : "./grammar/grammar-worker.ts", import.meta.url);
}
