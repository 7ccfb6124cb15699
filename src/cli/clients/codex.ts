/**
 * Codex on a local server (clients.md §3): the provider comes as `-c` overrides of its configuration; on request as
 * a profile, which is a file of its own beside `config.toml`.
 */
import { homedir } from "node:os";
import { join } from "node:path";
import type { CliIo } from "../io.ts";
import { KEY_VARIABLE } from "./pi.ts";
import type { ClientServer } from "./server-for-client.ts";

const PROVIDER = "mlx-dspark";

/** Values are TOML, which JSON strings and numbers are, too. */
function providerFields({ served: { url } }: ClientServer): readonly (readonly [string, string])[] {
  return [
    ["name", JSON.stringify("mlx-dspark")],
    ["base_url", JSON.stringify(`${url}/v1`)],
    ["wire_api", JSON.stringify("responses")],
    ["env_key", JSON.stringify(KEY_VARIABLE)],
  ];
}

function modelFields({ served: { model, contextWindow } }: ClientServer): readonly (readonly [string, string])[] {
  return [
    ["model_provider", JSON.stringify(PROVIDER)],
    ["model", JSON.stringify(model)],
    ...(contextWindow === null ? [] : [["model_context_window", String(contextWindow)] as const]),
  ];
}

export function codexArgs(server: ClientServer): string[] {
  const fields = [
    ...providerFields(server).map(([name, value]) => `model_providers.${PROVIDER}.${name}=${value}`),
    ...modelFields(server).map(([name, value]) => `${name}=${value}`),
  ];
  return fields.flatMap((field) => ["-c", field]);
}

export function codexEnvironment({ key }: ClientServer): Record<string, string> {
  return { [KEY_VARIABLE]: key ?? "mlx-dspark" };
}

/** A profile has a file of its own; Codex 0.171 refuses `[profiles.…]` tables of `config.toml`. */
export function codexConfigPath(io: CliIo): string {
  const folder = io.env.CODEX_HOME;
  const home = folder !== undefined && folder !== "" ? folder : join(io.env.HOME ?? homedir(), ".codex");
  return join(home, `${PROVIDER}.config.toml`);
}

/** The profile's file. It is ours whole: what somebody changed in it stays in the copy of the old one. */
export function codexProfile(server: ClientServer): string {
  const lines = (fields: readonly (readonly [string, string])[]) =>
    fields.map(([key, value]) => `${key} = ${value}\n`).join("");
  return `${lines(modelFields(server))}\n[model_providers.${PROVIDER}]\n${lines(providerFields(server))}`;
}
