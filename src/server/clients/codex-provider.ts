/**
 * The server as Codex's configuration names it (clients.md §3). A profile is a file of its own beside `config.toml`:
 * Codex 0.171 refuses `[profiles.…]` tables in that.
 */
import { type ClientServer, KEY_VARIABLE, PROVIDER } from "./client-server.ts";

/** In Codex's own folder, `~/.codex` unless `CODEX_HOME` says another. */
export const CODEX_PROFILE_FILE = `${PROVIDER}.config.toml`;

/** Values are TOML, which JSON strings and numbers are, too. */
type Fields = readonly (readonly [name: string, value: string])[];

function providerFields({ served: { url } }: ClientServer): Fields {
  return [
    ["name", JSON.stringify(PROVIDER)],
    ["base_url", JSON.stringify(`${url}/v1`)],
    ["wire_api", JSON.stringify("responses")],
    ["env_key", JSON.stringify(KEY_VARIABLE)],
  ];
}

function modelFields({ served: { model, contextWindow } }: ClientServer): Fields {
  return [
    ["model_provider", JSON.stringify(PROVIDER)],
    ["model", JSON.stringify(model)],
    ...(contextWindow === null ? [] : [["model_context_window", String(contextWindow)] as const]),
  ];
}

/** As `key=value`, each for a `-c` of its own. */
export function codexOverrides(server: ClientServer): string[] {
  return [
    ...providerFields(server).map(([name, value]) => `model_providers.${PROVIDER}.${name}=${value}`),
    ...modelFields(server).map(([name, value]) => `${name}=${value}`),
  ];
}

/** The whole text of the profile's file. */
export function codexProfile(server: ClientServer): string {
  const lines = (fields: Fields) => fields.map(([key, value]) => `${key} = ${value}\n`).join("");
  return `${lines(modelFields(server))}\n[model_providers.${PROVIDER}]\n${lines(providerFields(server))}`;
}
