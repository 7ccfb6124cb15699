/**
 * pi on a local server (clients.md §2): the provider comes as an extension file of this session, named by a flag; on
 * request as an entry of pi's `models.json`. The key stays in the environment.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import type { CliIo } from "../io.ts";
import type { ClientServer } from "./server-for-client.ts";

const PROVIDER = "mlx-dspark";
export const KEY_VARIABLE = "MLX_DSPARK_KEY";
/** Where the server does not say: pi's own guess for a model that it does not know is larger than most. */
const UNKNOWN_WINDOW_TOKENS = 32768;
/** Of the window, an answer's share: more would end the conversation with one long answer. */
const ANSWER_SHARE = 4;
/** pi sums a conversation up when less than this is free of the window that it is told (`compaction.reserveTokens`). */
const PI_RESERVE_TOKENS = 16384;

/** As pi reads it, from a file or from an extension. */
export function piProvider({ served: { url, model, contextWindow } }: ClientServer, apiKey: string) {
  const window = contextWindow ?? UNKNOWN_WINDOW_TOKENS;
  const entry = {
    id: model,
    name: `${model} (mlx-dspark)`,
    reasoning: false,
    input: ["text"],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    // With a window near its reserve it would sum up after every turn; so told, it does at three quarters of ours.
    contextWindow: Math.max(window, Math.floor((window * 3) / 4) + PI_RESERVE_TOKENS),
    maxTokens: Math.min(8192, Math.floor(window / ANSWER_SHARE)),
  };
  return { baseUrl: url, api: "anthropic-messages", apiKey, models: [entry] };
}

export interface PiSession extends Disposable {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** Must be disposed: that removes the extension's file. */
export function piSession(server: ClientServer): PiSession {
  const folder = mkdtempSync(join(tmpdir(), "mlx-dspark-pi-"));
  const file = join(folder, "mlx-dspark.js");
  const provider = JSON.stringify(piProvider(server, KEY_VARIABLE), null, 2);
  writeFileSync(file, `export default (pi) => pi.registerProvider(${JSON.stringify(PROVIDER)}, ${provider});\n`);
  return {
    args: ["--extension", file, "--provider", PROVIDER, "--model", server.served.model],
    env: { [KEY_VARIABLE]: server.key ?? "mlx-dspark" },
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export function piConfigPath(io: CliIo): string {
  const folder = io.env.PI_CODING_AGENT_DIR;
  return join(
    folder !== undefined && folder !== "" ? folder : join(io.env.HOME ?? homedir(), ".pi/agent"),
    "models.json",
  );
}

/** @throws Error when `present` is not a JSON object as pi writes it */
export function withPiProvider(present: string | null, server: ClientServer): string {
  const config: unknown = present === null || present.trim() === "" ? {} : JSON.parse(present);
  if (!isObject(config)) throw new Error("it is not a JSON object");
  const providers = config.providers ?? {};
  if (!isObject(providers)) throw new Error("its 'providers' is not an object");
  const mine = piProvider(server, server.key === null ? "mlx-dspark" : KEY_VARIABLE);
  return `${JSON.stringify({ ...config, providers: { ...providers, [PROVIDER]: mine } }, null, 2)}\n`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
