/**
 * Codex on a local server (clients.md §3): the provider comes as `-c` overrides of its configuration; on request as
 * tables of `config.toml` with a profile of their own.
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

export function codexConfigPath(io: CliIo): string {
  const folder = io.env.CODEX_HOME;
  return join(folder !== undefined && folder !== "" ? folder : join(io.env.HOME ?? homedir(), ".codex"), "config.toml");
}

/** Our two tables replaced or added, everything else as it is. @throws Error when `present` is not TOML */
export function withCodexProvider(present: string | null, server: ClientServer): string {
  Bun.TOML.parse(present ?? "");
  const ours = [`model_providers.${PROVIDER}`, `profiles.${PROVIDER}`];
  const kept: string[] = [];
  let inOurs = false;
  for (const line of (present ?? "").split("\n")) {
    const header = /^\s*\[\s*([^\][]+?)\s*\]\s*(?:#.*)?$/.exec(line)?.[1]?.replaceAll('"', "");
    if (header !== undefined || /^\s*\[\[/.test(line)) inOurs = header !== undefined && ours.includes(header);
    if (!inOurs) kept.push(line);
  }
  const table = (name: string, fields: readonly (readonly [string, string])[]) =>
    `[${name}]\n${fields.map(([key, value]) => `${key} = ${value}\n`).join("")}`;
  const head = kept.join("\n").trimEnd();
  const next = [
    ...(head === "" ? [] : [`${head}\n`]),
    table(`model_providers.${PROVIDER}`, providerFields(server)),
    table(`profiles.${PROVIDER}`, modelFields(server)),
  ].join("\n");
  Bun.TOML.parse(next);
  return next;
}
