/**
 * Where the engine thread's code is: `new Worker(workerUrl())`. In development it lies next to this file. In the
 * executable every module's `import.meta.url` is that of the root, `tools/build/executable.ts` puts the worker there
 * under its own name (entry naming without folders), and Bun maps `.ts` to the bundled `.js`: the same line is right.
 */
export function workerUrl(): URL {
  return new URL("./worker.ts", import.meta.url);
}
