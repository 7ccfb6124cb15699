/** Running the compiled executable as a user would: in an empty directory, with an environment of its own. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { repoRoot } from "../support/native.ts";

export const EXECUTABLE = join(repoRoot, "dist/mlx-dspark");
export const TINY_MODEL = join(repoRoot, "test/data/golden/dense/llama-f32");

export function requireExecutable(): void {
  if (!existsSync(EXECUTABLE)) throw new Error("dist/mlx-dspark is not there: run `make` first");
}

/** A folder for one test file's cache, so that libraries are unpacked once in it. */
export function temporaryCache(): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "mlx-dspark-e2e-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

export interface RunResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Only what is given: no PATH, no HOME, no locale. */
function environment(cache: string, extra: Readonly<Record<string, string>>): Record<string, string> {
  return { MLX_DSPARK_CACHE: cache, ...extra };
}

export async function run(
  cache: string,
  args: readonly string[],
  options: { readonly stdin?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<RunResult> {
  const cwd = mkdtempSync(join(tmpdir(), "mlx-dspark-cwd-"));
  try {
    const child = Bun.spawn([EXECUTABLE, ...args], {
      cwd,
      env: environment(cache, options.env ?? {}),
      stdin: options.stdin === undefined ? "ignore" : new TextEncoder().encode(options.stdin),
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr, exitCode] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    return { exitCode, stdout, stderr };
  } finally {
    rmSync(cwd, { recursive: true, force: true });
  }
}

export interface RunningServer extends AsyncDisposable {
  readonly url: string;
  readonly child: Bun.Subprocess<"ignore", "pipe", "pipe">;
  /** Everything on stderr so far. */
  log(): string;
  /** Waits until `/health` says ok. */
  ready(): Promise<void>;
}

/** Starts `serve --port 0` and waits until it listens. */
export async function serve(cache: string, args: readonly string[]): Promise<RunningServer> {
  const child = Bun.spawn([EXECUTABLE, "serve", "--port", "0", "--offline", ...args], {
    env: environment(cache, {}),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  let log = "";
  void (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of child.stderr) {
      log += decoder.decode(bytes, { stream: true });
    }
  })();
  const deadline = performance.now() + 60_000;
  let url: string | null = null;
  while (url === null) {
    url = /(http:\/\/127\.0\.0\.1:\d+)/.exec(log)?.[1] ?? null;
    if (url !== null) break;
    if (child.exitCode !== null || performance.now() > deadline) throw new Error(`serve did not start:\n${log}`);
    await Bun.sleep(20);
  }
  const base = url;
  return {
    url: base,
    child,
    log: () => log,
    ready: async () => {
      for (;;) {
        const health = (await (await fetch(`${base}/health`)).json()) as { status: string; error?: string | null };
        if (health.status === "ok") return;
        if (health.error) throw new Error(health.error);
        if (performance.now() > deadline) throw new Error(`not ready in time:\n${log}`);
        await Bun.sleep(50);
      }
    },
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}
