/**
 * Codex on a local server (clients.md §3): the provider comes as `-c` overrides of its configuration; on request as
 * a profile, which is a file of its own beside `config.toml`.
 */
import { homedir } from "node:os";
import { join } from "node:path";
import { ANY_KEY, type ClientServer, KEY_VARIABLE } from "../../server/clients/client-server.ts";
import { CODEX_PROFILE_FILE, codexOverrides } from "../../server/clients/codex-provider.ts";
import type { CliIo } from "../io.ts";

export function codexArgs(server: ClientServer): string[] {
  return codexOverrides(server).flatMap((field) => ["-c", field]);
}

export function codexEnvironment({ key }: ClientServer): Record<string, string> {
  return { [KEY_VARIABLE]: key ?? ANY_KEY };
}

/** The profile's file is ours whole: what somebody changed in it stays in the copy of the old one. */
export function codexConfigPath(io: CliIo): string {
  const folder = io.env.CODEX_HOME;
  const home = folder !== undefined && folder !== "" ? folder : join(io.env.HOME ?? homedir(), ".codex");
  return join(home, CODEX_PROFILE_FILE);
}
