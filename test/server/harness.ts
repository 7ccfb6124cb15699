/** A server on a loopback socket around the scripted engine, and what the tests ask of it. */
import OpenAI from "openai";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import { startServer } from "../../src/server/listen.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "../../src/server/options.ts";
import { ByteText } from "./byte-text.ts";
import { type Script, ScriptedEngine, writes } from "./scripted-engine.ts";

export interface Harness extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly engine: ScriptedEngine;
  readonly text: ByteText;
  readonly client: OpenAI;
  readonly log: string[];
  /** POSTs JSON; strings and bytes go out as they are. */
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>;
  stop(drainMs: number): Promise<void>;
}

export function harness(
  script: (request: GenerateRequest) => Script = () => writes("Hello, world."),
  options: Partial<ServerOptions> = {},
  engine = new ScriptedEngine(script),
): Harness {
  const text = new ByteText();
  const log: string[] = [];
  const server = startServer({
    engine,
    text: () => (engine.status.state === "ready" ? text : null),
    options: { ...DEFAULT_SERVER_OPTIONS, version: "9.9.9", ...options },
    host: "127.0.0.1",
    port: 0,
    log: (line) => log.push(line),
  });
  let stopped: Promise<void> | null = null;
  const stop = (drainMs: number) => {
    stopped ??= server.stop(drainMs);
    return stopped;
  };
  return {
    url: server.url,
    port: server.port,
    engine,
    text,
    log,
    client: new OpenAI({ baseURL: `${server.url}/v1`, apiKey: options.apiKey ?? "none", maxRetries: 0 }),
    post: (path, body, init = {}) =>
      fetch(server.url + path, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
        ...init,
      }),
    stop,
    [Symbol.asyncDispose]: () => stop(0),
  };
}

/** A field path of parsed JSON, for assertions on answers whose type is not ours. */
export function at(value: unknown, ...path: (string | number)[]): unknown {
  let current = value;
  for (const key of path) {
    if (typeof current !== "object" || current === null) return undefined;
    current = Reflect.get(current, key);
  }
  return current;
}

/** `data:` payloads of a finished stream, parsed; `[DONE]` stays a string. */
export function dataLines(text: string): unknown[] {
  return text
    .split("\n\n")
    .filter((frame) => frame.startsWith("data: "))
    .map((frame) => frame.slice("data: ".length))
    .map((data) => (data === "[DONE]" ? data : JSON.parse(data)));
}

/** Waits until a condition holds; throws after two seconds, or the time given. */
export async function until(condition: () => boolean, milliseconds = 2000): Promise<void> {
  const deadline = performance.now() + milliseconds;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`the condition did not come true within ${milliseconds} ms`);
    await Bun.sleep(2);
  }
}
