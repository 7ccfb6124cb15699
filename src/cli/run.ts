/**
 * Dispatch (cli.md §1): which command argv means, its help, and how what it threw becomes a message and an exit code.
 * 0 ok · 1 failed · 2 wrong usage · 130 interrupted.
 */
import { type CommandDef, defineCommand } from "citty";
import { EngineError } from "../engine/client.ts";
import { RequestError } from "../server/errors.ts";
import { benchmarkCommand } from "./benchmark/command.ts";
import { claudeCommand } from "./clients/claude.ts";
import { launchCommand } from "./clients/launch.ts";
import { type CliCommand, helpText } from "./command.ts";
import { completionsCommand } from "./completions.ts";
import { doctorCommand } from "./doctor.ts";
import { CliError, usageError } from "./errors.ts";
import { generateCommand } from "./generate.ts";
import { type CliIo, say } from "./io.ts";
import { modelsCommand } from "./models.ts";
import { nearest } from "./nearest.ts";
import { pullCommand } from "./pull.ts";
import { serveCommand } from "./serve.ts";
import { versionCommand } from "./version.ts";

const COMMANDS: readonly CliCommand[] = [
  serveCommand,
  claudeCommand,
  launchCommand,
  generateCommand,
  benchmarkCommand,
  modelsCommand,
  pullCommand,
  doctorCommand,
  versionCommand,
  completionsCommand(() => COMMANDS),
];

/** Runs one command line (without program and script) and resolves to the exit code; it never throws. */
export async function runCli(argv: readonly string[], io: CliIo): Promise<number> {
  try {
    return await dispatch(argv, io);
  } catch (error) {
    say(io, messageOf(error));
    return error instanceof CliError ? error.exitCode : 1;
  }
}

async function dispatch(argv: readonly string[], io: CliIo): Promise<number> {
  const [first, ...others] = argv;
  const root = rootCommand(io);
  if (first === undefined || first === "-h" || first === "--help") {
    io.stdout.write(await helpText(root, null, io));
    return 0;
  }
  if (first === "--version") return versionCommand.run(others, io);
  const flat = first.startsWith("-");
  const command = flat ? generateCommand : COMMANDS.find(({ name }) => name === first);
  if (command === undefined) throw usageError(unknownCommand(first));
  const rest = flat ? argv : others;
  if (asksForHelp(rest)) {
    io.stdout.write(await helpText(command.citty, root, io));
    return 0;
  }
  if (flat) say(io, "note: flags without a command are deprecated: write 'mlx-dspark generate …'");
  return command.run(rest, io);
}

/** What stands behind `--` is for another program. */
function asksForHelp(words: readonly string[]): boolean {
  const end = words.indexOf("--");
  return words.slice(0, end === -1 ? undefined : end).some((word) => word === "-h" || word === "--help");
}

function rootCommand(io: CliIo): CommandDef {
  return defineCommand({
    meta: {
      name: "mlx-dspark",
      version: io.version,
      description: "Lossless speculative decoding for local language models on MLX",
    },
    subCommands: Object.fromEntries(COMMANDS.map((command) => [command.name, command.citty])),
  });
}

function unknownCommand(word: string): string {
  const names = COMMANDS.map(({ name }) => name);
  const similar = nearest(word, names);
  const hint = similar === null ? `commands: ${names.join(", ")}` : `did you mean '${similar}'?`;
  return `unknown command '${word}'; ${hint}`;
}

/** People get the message; a stack only for what no layer of this program has named. */
function messageOf(error: unknown): string {
  if (error instanceof CliError)
    return error.exitCode === 2 ? `mlx-dspark: ${error.message}` : `error: ${error.message}`;
  if (error instanceof EngineError || error instanceof RequestError) return `error: ${error.message}`;
  return error instanceof Error
    ? `internal error: ${error.stack ?? error.message}`
    : `internal error: ${String(error)}`;
}
