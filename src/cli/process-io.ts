/** The real outside: this process's streams, environment and signals, the engine's thread and the text files. */
import { isatty } from "node:tty";
import packageFile from "../../package.json" with { type: "json" };
import { nativeFolder } from "../engine/embedded/files.ts";
import { embedded } from "../engine/embedded/manifest.ts";
import { spawnEngine } from "../engine/spawn.ts";
import { textSource } from "../server/generation/text-source.ts";
import { TextModel } from "../text/index.ts";
import type { CliIo, TextOutput } from "./io.ts";

/** Width where the terminal does not say. */
const DEFAULT_COLUMNS = 80;

export function processIo(): CliIo {
  endOnBrokenPipe(process.stdout);
  const stderr = output(process.stderr);
  return {
    stdout: output(process.stdout),
    stderr,
    readStdin: () => Bun.stdin.text(),
    env: process.env,
    version: packageFile.version,
    self: embedded === null ? [process.execPath, Bun.main] : [process.execPath],
    interactive: isatty(0),
    spawnEngine: () => spawnEngine(nativeFolder()),
    loadText: async (dir) => textSource(await TextModel.load(dir), (line) => stderr.write(`${line}\n`)),
    onSignal: (names, handler) => {
      const listeners = names.map((name) => [name, () => handler(name)] as const);
      for (const [name, listener] of listeners) process.on(name, listener);
      return () => {
        for (const [name, listener] of listeners) process.off(name, listener);
      };
    },
    exitNow: (code) => process.exit(code),
  };
}

/** Resolves when everything written so far has left the process: an exit before would cut a pipe's end. */
export function flushed(): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write("", () => process.stderr.write("", () => resolve()));
  });
}

function output(stream: NodeJS.WriteStream): TextOutput {
  return {
    write: (text) => {
      stream.write(text);
    },
    get isTTY() {
      return stream.isTTY === true;
    },
    get columns() {
      return stream.columns ?? DEFAULT_COLUMNS;
    },
  };
}

/** `mlx-dspark generate | head -1`: the reader has what it wanted. */
function endOnBrokenPipe(stream: NodeJS.WriteStream): void {
  stream.on("error", (error) => {
    if ("code" in error && error.code === "EPIPE") process.exit(0);
    throw error;
  });
}
