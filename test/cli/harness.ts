/** A command line in a box: streams that are kept, signals that the test sends, the scripted engine behind it. */

import { join } from "node:path";
import type { CliIo, ForwardedSignal } from "../../src/cli/io.ts";
import { runCli } from "../../src/cli/run.ts";
import type { GenerateRequest, ModelInfo } from "../../src/engine/protocol.ts";
import { ByteText } from "../server/byte-text.ts";
import { SCRIPTED_MODEL, type Script, ScriptedEngine, writes } from "../server/scripted-engine.ts";

export interface CliBox {
  readonly io: CliIo;
  readonly engine: ScriptedEngine;
  readonly text: ByteText;
  stdout(): string;
  stderr(): string;
  run(...argv: string[]): Promise<number>;
  signal(name: ForwardedSignal): void;
  readonly exits: number[];
}

export interface BoxOptions {
  readonly script?: (request: GenerateRequest) => Script;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly tty?: boolean;
  readonly interactive?: boolean;
  readonly model?: ModelInfo;
}

export function cliBox({
  script = () => writes("Hello."),
  env = {},
  stdin = "",
  tty = false,
  interactive = false,
  model = SCRIPTED_MODEL,
}: BoxOptions = {}): CliBox {
  const engine = new ScriptedEngine(script, model);
  engine.status = { state: "no_model" };
  const text = new ByteText();
  const written = { out: "", err: "" };
  const keep = (stream: "out" | "err") => (piece: string) => {
    written[stream] += piece;
  };
  const handlers = new Set<(signal: ForwardedSignal) => void>();
  const exits: number[] = [];
  const io: CliIo = {
    stdout: { write: keep("out"), isTTY: tty, columns: 80 },
    stderr: { write: keep("err"), isTTY: tty, columns: 80 },
    readStdin: () => Promise.resolve(stdin),
    env,
    version: "9.9.9",
    self: [process.execPath, join(import.meta.dir, "../../src/main.ts")],
    interactive,
    spawnEngine: () => engine,
    loadText: () => Promise.resolve(text),
    onSignal: (names, handler) => {
      const listener = (signal: ForwardedSignal) => {
        const name = names.find((known) => known === signal);
        if (name !== undefined) handler(name);
      };
      handlers.add(listener);
      return () => void handlers.delete(listener);
    },
    exitNow: (code) => void exits.push(code),
  };
  return {
    io,
    engine,
    text,
    stdout: () => written.out,
    stderr: () => written.err,
    run: (...argv) => runCli(argv, io),
    signal: (name) => {
      for (const handler of [...handlers]) handler(name);
    },
    exits,
  };
}
