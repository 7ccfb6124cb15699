/**
 * `mlx-dspark launch claude|pi|codex`: a coding agent on a local server, configured for this session by its flags and
 * environment. A file of the user's is written only with `--write-config`, which starts nothing.
 */
import { ANY_KEY, type ClientServer, KEY_VARIABLE } from "../../server/clients/client-server.ts";
import { codexProfile } from "../../server/clients/codex-provider.ts";
import { defineCliCommand } from "../command.ts";
import type { CommandLine } from "../command-line.ts";
import { usageError } from "../errors.ts";
import { type FlagValues, switchFlag } from "../flags.ts";
import { type CliIo, say } from "../io.ts";
import { claudeFlags, startClaude } from "./claude.ts";
import { editConfig } from "./client-config.ts";
import { codexArgs, codexConfigPath, codexEnvironment } from "./codex.ts";
import { piConfigPath, piSession, withPiProvider } from "./pi.ts";
import { reaching } from "./proxies.ts";
import { findProgram, runProgram } from "./run-program.ts";
import { requireServer, serverFlags, withServer } from "./server-for-client.ts";

const { lean, "allow-traffic": allowTraffic } = claudeFlags;

const launchFlags = {
  "write-config": switchFlag("add the server that runs to the client's own configuration, and start nothing"),
  lean: { ...lean, help: `claude: ${lean.help}` },
  "allow-traffic": { ...allowTraffic, help: `claude: ${allowTraffic.help}` },
  ...serverFlags,
};

type LaunchFlags = FlagValues<typeof launchFlags>;

interface Launchable {
  readonly howToGet: string;
  /** Runs the program; resolves to its exit code. */
  readonly start: (program: string, server: ClientServer, passed: readonly string[], io: CliIo) => Promise<number>;
  readonly configPath: (io: CliIo) => string;
  readonly edit: (present: string | null, server: ClientServer) => string;
  /** How to use what was written. */
  readonly usage: (server: ClientServer) => string;
}

const LAUNCHABLE: Readonly<Record<"pi" | "codex", Launchable>> = {
  pi: {
    howToGet: "npm install -g @mariozechner/pi-coding-agent",
    start: async (program, server, passed, io) => {
      using session = piSession(server);
      const env = { ...reaching(server.served.url, io.env), ...session.env };
      return await runProgram([program, ...session.args, ...passed], env, io);
    },
    configPath: piConfigPath,
    edit: withPiProvider,
    usage: ({ served, key }) => `${keyPart(key)}pi --provider mlx-dspark --model ${served.model}`,
  },
  codex: {
    howToGet: "npm install -g @openai/codex",
    start: (program, server, passed, io) => {
      const env = { ...reaching(server.served.url, io.env), ...codexEnvironment(server) };
      return runProgram([program, ...codexArgs(server), ...passed], env, io);
    },
    configPath: codexConfigPath,
    edit: (_present, server) => codexProfile(server),
    usage: ({ key }) => `${KEY_VARIABLE}=${key === null ? ANY_KEY : "<key>"} codex --profile mlx-dspark`,
  },
};

export const launchCommand = defineCliCommand({
  name: "launch",
  description: "Run a coding agent on a local model; arguments for it stand behind --",
  flags: launchFlags,
  shape: {
    words: [{ name: "CLIENT", help: "claude, pi or codex", choices: ["claude", "pi", "codex"] }],
    passes: "rest",
  },
  run: runLaunch,
});

async function runLaunch(flags: LaunchFlags, io: CliIo, { words, passed }: CommandLine<unknown>): Promise<number> {
  const [name = ""] = words;
  if (name !== "pi" && name !== "codex") {
    if (flags["write-config"]) throw usageError("claude needs no file: see mlx-dspark claude --print-settings");
    return startClaude(flags, { allowTraffic: flags["allow-traffic"], lean: flags.lean }, passed, io);
  }
  const client = LAUNCHABLE[name];
  if (flags["write-config"]) return writeConfig(client, await requireServer(flags, io), io);
  const program = findProgram(name, client.howToGet, io);
  return withServer(flags, io, (server) => {
    const { url, model, mode } = server.served;
    say(io, `${name} -> ${url}  ·  model ${model} (${mode})  ·  this session only`);
    return client.start(program, server, passed, io);
  });
}

async function writeConfig(client: Launchable, server: ClientServer, io: CliIo): Promise<number> {
  const path = client.configPath(io);
  const { backup, changed } = await editConfig(path, (present) => client.edit(present, server));
  const kept = backup === null ? "" : `; what was there is in ${backup}`;
  say(io, changed ? `wrote ${path}${kept}` : `${path} is as it should be`);
  say(io, `use it: ${client.usage(server)}`);
  return 0;
}

function keyPart(key: string | null): string {
  return key === null ? "" : `${KEY_VARIABLE}=<key> `;
}
