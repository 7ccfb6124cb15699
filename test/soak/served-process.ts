/** `mlx-dspark serve` as a process of its own on a free port. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { repoRoot } from "../support/native.ts";

const START_MS_MAX = 30_000;
/** A little longer than both threads of an idle server wait before they tidy up. */
const REST_MS = 1500;

/** The built executable where it is, else the program from its sources. */
export function newestProgram(): readonly string[] {
  const executable = join(repoRoot, "dist/mlx-dspark");
  return existsSync(executable) ? [executable] : fromSources();
}

export function fromSources(): readonly string[] {
  return [process.execPath, join(repoRoot, "src/main.ts")];
}

export interface EngineCounters {
  readonly live_arrays: number;
  readonly active_rows: number;
  readonly requests_done: number;
  readonly active_bytes: number;
}

export class ServedProcess implements AsyncDisposable {
  private constructor(
    private readonly child: Bun.Subprocess<"ignore", "ignore", "pipe">,
    /** Root of the server, e.g. "http://127.0.0.1:4711". */
    readonly url: string,
    private readonly home: string,
  ) {}

  /** Serves the model folder; resolves when requests are answered. */
  static async start(program: readonly string[], model: string): Promise<ServedProcess> {
    const home = mkdtempSync(join(tmpdir(), "soak-home-"));
    const child = Bun.spawn([...program, "serve", "--model", model, "--port", "0", "--offline"], {
      stdin: "ignore",
      stdout: "ignore",
      stderr: "pipe",
      env: { HOME: home, PATH: process.env.PATH ?? "" },
    });
    const url = Promise.withResolvers<string>();
    const stderr = drain(child.stderr, url.resolve);
    void stderr.then(() => url.reject(new Error("it ended before it listened")));
    try {
      const served = new ServedProcess(child, await url.promise, home);
      await served.ready();
      return served;
    } catch (error) {
      child.kill();
      await child.exited;
      rmSync(home, { recursive: true, force: true });
      throw new Error(`${program.join(" ")} serve did not start:\n${await stderr}`, { cause: error });
    }
  }

  private async ready(): Promise<void> {
    const deadline = performance.now() + START_MS_MAX;
    while ((await this.health()).status !== "ok") {
      if (performance.now() > deadline) throw new Error(`the model was not loaded within ${START_MS_MAX} ms`);
      await Bun.sleep(50);
    }
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /**
   * Resident memory in bytes of a server at rest: its threads have collected their garbage and given freed memory back.
   * The least of `rests` rests with a request between them: a collector leaves pages that the next run finds empty, and
   * what counts is what no run gives back.
   */
  async residentBytesAtRest(rests: number): Promise<number> {
    let least = Number.POSITIVE_INFINITY;
    for (let i = 0; i < rests; i++) {
      await fetch(`${this.url}/v1/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ prompt: "rest", max_tokens: 1 }),
      }).then((reply) => reply.text());
      await Bun.sleep(REST_MS);
      const { stdout } = Bun.spawnSync(["ps", "-o", "rss=", "-p", String(this.child.pid)]);
      least = Math.min(least, Number(stdout.toString().trim()) * 1024);
    }
    return least;
  }

  /** The engine's counters once no row is active. */
  async idleCounters(): Promise<EngineCounters> {
    for (;;) {
      const { engine } = await this.health();
      if (engine !== null && engine !== undefined && engine.active_rows === 0) return engine;
      await Bun.sleep(20);
    }
  }

  private async health(): Promise<{ readonly status: string; readonly engine?: EngineCounters | null }> {
    const reply = await fetch(`${this.url}/health`);
    return (await reply.json()) as { readonly status: string; readonly engine?: EngineCounters | null };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill("SIGTERM");
    await this.child.exited;
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** Reads a stream to its end, so that the writer never waits; tells the first URL in it. */
async function drain(stream: ReadableStream<Uint8Array>, onUrl: (url: string) => void): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of stream) {
    text += decoder.decode(piece, { stream: true });
    const url = /http:\/\/[\d.]+:\d+/.exec(text);
    if (url !== null) onUrl(url[0]);
  }
  return text;
}
