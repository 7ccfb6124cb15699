/**
 * A real client program in a box: a home of its own, a limit of time, and no way out of this machine — what it asks of
 * other hosts goes to a proxy that notes it and answers nothing.
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { dirname, join } from "node:path";
import { EXECUTABLE } from "../e2e/executable.ts";
import { repoRoot } from "../support/native.ts";

const folder = join(repoRoot, "build/clients");
/** Models and measurements of the runs before: a conversion and a calibration are done once. */
export const CLIENT_CACHE = join(folder, "cache");

export interface Installed {
  /** Folder that holds the program. */
  readonly bin: string;
  /** Why it is not there; null: it is. */
  readonly skipped: string | null;
}

/** What `tools/setup/clients.ts` has left. A skipped client is named with its reason. */
export function installed(name: "claude" | "pi" | "codex"): Installed {
  const bin = join(folder, name, "node_modules/.bin");
  if (existsSync(join(bin, name))) return { bin, skipped: null };
  const note = join(folder, `${name}.skipped`);
  const skipped = existsSync(note) ? readFileSync(note, "utf8").trim() : "not installed: run `make test-clients`";
  console.error(`skipped: ${name}: ${skipped}`);
  return { bin, skipped };
}

export interface ClientRun {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
}

export interface ClientBox extends AsyncDisposable {
  readonly home: string;
  /** `host:port` of what was asked of other machines. */
  readonly outside: readonly string[];
  /** Runs `mlx-dspark …` with the client on PATH. */
  run(args: readonly string[], limitMs: number): Promise<ClientRun>;
}

export async function clientBox(client: Installed, env: Readonly<Record<string, string>> = {}): Promise<ClientBox> {
  mkdirSync(folder, { recursive: true });
  // Below the repository: Codex refuses to work from a temporary folder's home.
  const home = mkdtempSync(join(folder, "home-"));
  const work = join(home, "work");
  mkdirSync(work);
  const outside: string[] = [];
  const { proxy, url } = await deadEnd(outside);
  const node = dirname(Bun.which("node") ?? "node");
  const environment = {
    ...{ PATH: [client.bin, node, "/usr/bin", "/bin"].join(":"), HOME: home, TERM: "dumb" },
    ...{ HTTP_PROXY: url, HTTPS_PROXY: url, ALL_PROXY: url, MLX_DSPARK_CACHE: CLIENT_CACHE },
    ...env,
  };
  return {
    ...{ home, outside },
    run: async (args, limitMs) => {
      const child = Bun.spawn([EXECUTABLE, ...args], {
        ...{ cwd: work, env: environment, stdin: "ignore", stdout: "pipe", stderr: "pipe" },
      });
      let timedOut = false;
      const timer = setTimeout(() => {
        timedOut = true;
        // The client gets it too, and its own server ends with it.
        child.kill("SIGTERM");
      }, limitMs);
      const last = setTimeout(() => child.kill("SIGKILL"), limitMs + 10_000);
      const [stdout, stderr] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
      ]);
      const exitCode = await child.exited;
      for (const each of [timer, last]) clearTimeout(each);
      return { exitCode, stdout, stderr, timedOut };
    },
    [Symbol.asyncDispose]: async () => {
      await new Promise((resolve) => proxy.close(resolve));
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** A proxy that hangs up on everybody. */
async function deadEnd(asked: string[]): Promise<{ readonly proxy: Server; readonly url: string }> {
  const proxy = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.once("data", (bytes) => {
      const [, target = "?"] = bytes.toString("latin1").split(" ", 2);
      asked.push(target);
      socket.destroy();
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const address = proxy.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  return { proxy, url: `http://127.0.0.1:${address.port}` };
}
