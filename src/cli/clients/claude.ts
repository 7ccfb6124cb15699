/** `mlx-dspark claude`: Claude Code on a local server, for this session only; nothing outside the child changes (cli.md §5). */
import {
  claudeEnvironment,
  exportLines,
  REMOVED_VARIABLES,
  USABLE_WINDOW_TOKENS,
} from "../../server/clients/claude-environment.ts";
import type { ClientServer } from "../../server/clients/client-server.ts";
import { defineCliCommand } from "../command.ts";
import type { CommandLine } from "../command-line.ts";
import { type FlagValues, switchFlag } from "../flags.ts";
import { type CliIo, say } from "../io.ts";
import { reaching } from "./proxies.ts";
import { findProgram, runProgram } from "./run-program.ts";
import { requireServer, type ServerFlags, serverFlags, withServer } from "./server-for-client.ts";

const HOW_TO_GET = "npm install -g @anthropic-ai/claude-code";
/** Claude Code's switch to a prompt of a tenth of the length and three tools. */
const LEAN_ARGUMENT = "--bare";

export const claudeFlags = {
  lean: switchFlag("a tenth of the prompt and three tools: for small windows and slow prefill"),
  "allow-traffic": switchFlag("let Claude Code make requests to other hosts, too"),
  "print-env": switchFlag("print the environment as export lines, and do not start anything"),
  "print-settings": switchFlag("print the environment as Claude Code's settings, and do not start anything"),
  ...serverFlags,
};

type ClaudeFlags = FlagValues<typeof claudeFlags>;

export const claudeCommand = defineCliCommand({
  name: "claude",
  description: "Run Claude Code on a local model; starts a server when none runs. Other arguments go to claude",
  flags: claudeFlags,
  shape: { passes: "unknown" },
  run: runClaude,
});

async function runClaude(flags: ClaudeFlags, io: CliIo, { passed }: CommandLine<unknown>): Promise<number> {
  const options = { allowTraffic: flags["allow-traffic"] };
  if (flags["print-env"] || flags["print-settings"]) {
    const env = claudeEnvironment(await requireServer(flags, io), options);
    if (flags["print-env"])
      io.stdout.write(
        exportLines(env, io.env)
          .map((line) => `${line}\n`)
          .join(""),
      );
    else io.stdout.write(`${JSON.stringify({ env }, null, 2)}\n`);
    return 0;
  }
  return startClaude(flags, { ...options, lean: flags.lean }, passed, io);
}

/** Resolves to claude's exit code. */
export function startClaude(
  flags: ServerFlags,
  options: { readonly allowTraffic: boolean; readonly lean: boolean },
  passed: readonly string[],
  io: CliIo,
): Promise<number> {
  // Before a model is loaded for nothing.
  const program = findProgram("claude", HOW_TO_GET, io);
  return withServer(flags, io, (server) => {
    announce(server, options.lean, io);
    const present = reaching(server.served.url, io.env);
    const env: Record<string, string | undefined> = { ...present, ...claudeEnvironment(server, options) };
    for (const name of REMOVED_VARIABLES) delete env[name];
    return runProgram([program, ...(options.lean ? [LEAN_ARGUMENT] : []), ...passed], env, io);
  });
}

function announce({ served }: ClientServer, lean: boolean, io: CliIo): void {
  const { url, model, mode, contextWindow } = served;
  say(io, `claude code -> ${url}  ·  model ${model} (${mode})  ·  this session only`);
  if (contextWindow === null || contextWindow >= USABLE_WINDOW_TOKENS || lean) return;
  say(
    io,
    `note: Claude Code's own prompt takes about 12000 of the ${contextWindow} tokens that this model reads: ` +
      "use --lean, or a model with a larger window",
  );
}
