/**
 * What the environment says about the hub: endpoint, token, offline switch, cache folder. Read once per resolution from
 * a plain record, so tests pass their own. The token's value never leaves `HubSettings.token`.
 */
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { HubError } from "./errors.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

const DEFAULT_ENDPOINT = "https://huggingface.co";

export interface HubSettings {
  /** Base address without trailing slash. */
  readonly endpoint: string;
  readonly token: string | null;
  /** Where the token comes from, for messages: `HF_TOKEN` or a file's path. */
  readonly tokenSource: string | null;
  readonly offline: boolean;
  /** Folder of the Hugging Face cache, made for `models--ORG--NAME`. */
  readonly cacheDir: string;
}

/** Home folder; `HOME` wins so that a test or a service account can move it. */
export function homeFolder(env: Environment): string {
  return set(env.HOME) ?? homedir();
}

/** Reads the hub's settings. `offline` is the flag; the variable `HF_HUB_OFFLINE` switches it on too. */
export function hubSettings(env: Environment, offline: boolean): HubSettings {
  const { token, tokenSource } = readToken(env);
  return {
    endpoint: readEndpoint(env),
    token,
    tokenSource,
    offline: offline || /^(1|true|yes)$/i.test(env.HF_HUB_OFFLINE?.trim() ?? ""),
    cacheDir: set(env.HF_HUB_CACHE) ?? set(env.HUGGINGFACE_HUB_CACHE) ?? join(huggingFaceHome(env), "hub"),
  };
}

function readEndpoint(env: Environment): string {
  const text = (set(env.HF_ENDPOINT) ?? DEFAULT_ENDPOINT).replace(/\/+$/, "");
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw new HubError("bad_name", `HF_ENDPOINT is no http(s) address: "${text}"`);
  }
  return text;
}

function readToken(env: Environment): { token: string | null; tokenSource: string | null } {
  const fromEnv = set(env.HF_TOKEN);
  if (fromEnv !== null) return { token: checkedToken(fromEnv, "HF_TOKEN"), tokenSource: "HF_TOKEN" };
  const path = set(env.HF_TOKEN_PATH) ?? join(huggingFaceHome(env), "token");
  let text: string;
  try {
    text = readFileSync(path, "utf8").trim();
  } catch {
    return { token: null, tokenSource: null }; // No readable token file is the normal case: anonymous access.
  }
  return text === "" ? { token: null, tokenSource: null } : { token: checkedToken(text, path), tokenSource: path };
}

/** A header value must be visible ASCII; checked here because the runtime's own error would print the value. */
function checkedToken(token: string, source: string): string {
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new HubError("denied", `the token in ${source} contains blanks or characters that no token has`);
}

function huggingFaceHome(env: Environment): string {
  const cacheHome = set(env.XDG_CACHE_HOME) ?? join(homeFolder(env), ".cache");
  return set(env.HF_HOME) ?? join(cacheHome, "huggingface");
}

/** Trimmed value, or null when unset or blank: an empty variable means "not set". */
export function set(value: string | undefined): string | null {
  const text = value?.trim() ?? "";
  return text === "" ? null : text;
}
