/**
 * pi on a local server (clients.md §2): the provider comes as an extension file of this session, named by a flag; on
 * request as an entry of pi's `models.json`. The key stays in the environment.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { ANY_KEY, type ClientServer, KEY_VARIABLE, PROVIDER } from "../../server/clients/client-server.ts";
import { piProvider } from "../../server/clients/pi-provider.ts";
import type { CliIo } from "../io.ts";

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
    env: { [KEY_VARIABLE]: server.key ?? ANY_KEY },
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
  const mine = piProvider(server, server.key === null ? ANY_KEY : KEY_VARIABLE);
  return `${JSON.stringify({ ...config, providers: { ...providers, [PROVIDER]: mine } }, null, 2)}\n`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
