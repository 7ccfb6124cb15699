/** Runs another program in this one's terminal and ends as it does: its exit code, or 128 + the signal that ended it. */
import { constants } from "node:os";
import { usageError } from "../errors.ts";
import type { CliIo, ForwardedSignal } from "../io.ts";

const FORWARDED: readonly ForwardedSignal[] = ["SIGINT", "SIGTERM", "SIGHUP", "SIGWINCH"];

/** The program's path. Throws a usage error that says how to get it. */
export function findProgram(name: string, howToGet: string, io: CliIo): string {
  const path = Bun.which(name, { PATH: io.env.PATH ?? "" });
  if (path === null) throw usageError(`'${name}' is not on PATH: ${howToGet}`);
  return path;
}

export async function runProgram(
  words: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  io: CliIo,
): Promise<number> {
  const child = Bun.spawn([...words], { stdin: "inherit", stdout: "inherit", stderr: "inherit", env: { ...env } });
  const unlisten = io.onSignal(FORWARDED, (name) => {
    // A terminal has sent its Ctrl-C to both.
    if (name !== "SIGINT" || !io.interactive) child.kill(name);
  });
  try {
    const code = await child.exited;
    const signal = Object.entries(constants.signals).find(([name]) => name === child.signalCode);
    return signal === undefined ? code : 128 + signal[1];
  } finally {
    unlisten();
  }
}
