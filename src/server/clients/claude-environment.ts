/**
 * The environment in which Claude Code talks to a local server and to nothing else (cli.md §5, clients.md §1). Pure; the
 * reasons for the single variables were measured with Claude Code 2.1.332.
 */
import { ANY_KEY, type ClientServer } from "./client-server.ts";

/** Below it Claude Code's own prompt (about 12 thousand tokens) leaves no room to work. */
export const USABLE_WINDOW_TOKENS = 24_000;
/** Silence that Claude Code bears on a stream; its own five minutes end a long prefill. */
const STREAM_IDLE_MS = 1_200_000;
/** From this window on the peer sets a compaction threshold. */
const LARGE_WINDOW_TOKENS = 100_000;

const TIERS = ["OPUS", "SONNET", "HAIKU", "FABLE"] as const;

/** They would send the session to another host, or another key to this one. */
export const REMOVED_VARIABLES = [
  "ANTHROPIC_API_KEY",
  ...["BEDROCK", "VERTEX", "FOUNDRY", "MANTLE", "ANTHROPIC_AWS"].map((name) => `CLAUDE_CODE_USE_${name}`),
] as const;

export interface ClaudeOptions {
  /** Let Claude Code make the requests that it does not need. */
  readonly allowTraffic: boolean;
}

/** The variables to set, by name. */
export function claudeEnvironment({ served, key }: ClientServer, { allowTraffic }: ClaudeOptions) {
  const { url, model, mode, backend, contextWindow, maxOutputTokens } = served;
  const place = backend === "metal" ? "Apple Silicon" : "this machine";
  const env: Record<string, string> = {
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_AUTH_TOKEN: key ?? ANY_KEY,
    ANTHROPIC_MODEL: model,
    ANTHROPIC_SMALL_FAST_MODEL: model,
    // It varies with every session, at the head of the prompt, and would keep the rest from being reused.
    CLAUDE_CODE_ATTRIBUTION_HEADER: "0",
    CLAUDE_STREAM_IDLE_TIMEOUT_MS: String(STREAM_IDLE_MS),
  };
  for (const tier of TIERS) {
    env[`ANTHROPIC_DEFAULT_${tier}_MODEL`] = model;
    env[`ANTHROPIC_DEFAULT_${tier}_MODEL_NAME`] = `${model} (mlx-dspark)`;
    env[`ANTHROPIC_DEFAULT_${tier}_MODEL_DESCRIPTION`] = `Local ${mode} on ${place} via mlx-dspark`;
  }
  if (contextWindow !== null) {
    // A model that it does not know counts as one of a million tokens.
    env.CLAUDE_CODE_MAX_CONTEXT_TOKENS = String(contextWindow);
    // It compacts at about window - output: with its own 32000 a small window would be compacted on every turn.
    const share = Math.max(2048, Math.floor(contextWindow / 8));
    env.CLAUDE_CODE_MAX_OUTPUT_TOKENS = String(Math.min(maxOutputTokens ?? share, share));
    if (contextWindow >= LARGE_WINDOW_TOKENS) {
      env.CLAUDE_CODE_AUTO_COMPACT_WINDOW = String(Math.floor(0.8 * contextWindow));
    }
  }
  if (!allowTraffic) env.CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1";
  return env;
}

/** Lines for a POSIX shell: what differs from `present`, sorted by name. */
export function exportLines(
  env: Readonly<Record<string, string>>,
  present: Readonly<Record<string, string | undefined>>,
): string[] {
  const unset = REMOVED_VARIABLES.filter((name) => present[name] !== undefined).map((name) => `unset ${name}`);
  const set = Object.keys(env)
    .filter((name) => present[name] !== env[name])
    .sort()
    .map((name) => `export ${name}=${quoted(env[name] ?? "")}`);
  return [...unset, ...set];
}

/** `'` inside becomes `'\''`. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
