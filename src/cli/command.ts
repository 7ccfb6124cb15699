/** A command: its name and help, its flags and words, and what it does with them. citty prints the help page. */
import { type CommandDef, defineCommand, renderUsage } from "citty";
import { type CommandLine, cittyArgs, type LineShape, parseLine } from "./command-line.ts";
import type { Flags, FlagValues } from "./flags.ts";
import type { CliIo } from "./io.ts";

export interface CliCommand {
  readonly name: string;
  readonly description: string;
  readonly flags: Flags;
  readonly shape: LineShape;
  readonly citty: CommandDef;
  /** Parses argv (a usage error is thrown) and runs; resolves to the exit code. */
  run(argv: readonly string[], io: CliIo): Promise<number>;
}

export interface CliCommandDefinition<F extends Flags> {
  readonly name: string;
  readonly description: string;
  readonly flags: F;
  readonly shape?: LineShape;
  readonly run: (flags: FlagValues<F>, io: CliIo, line: CommandLine<F>) => Promise<number>;
}

export function defineCliCommand<F extends Flags>(definition: CliCommandDefinition<F>): CliCommand {
  const { name, description, flags, shape = {}, run } = definition;
  return {
    ...{ name, description, flags, shape },
    citty: defineCommand({ meta: { name, description }, args: cittyArgs(flags, shape) }),
    run: (argv, io) => {
      const line = parseLine(argv, flags, shape);
      return run(line.flags, io, line);
    },
  };
}

/** The help page of a command, in colours only for a terminal that wants them. */
export async function helpText(command: CommandDef, parent: CommandDef | null, io: CliIo): Promise<string> {
  const text = await renderUsage(command, parent ?? undefined);
  const coloured = io.stdout.isTTY && !io.env.NO_COLOR;
  const plain = coloured ? text : Bun.stripANSI(text);
  return `${plain.replace(/ +$/gm, "")}\n`;
}
