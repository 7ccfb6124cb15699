/** What a command may touch outside: streams, environment, signals, the engine. Tests give it others. */
import type { EngineClient } from "../engine/client.ts";
import type { TextSource } from "../server/generation/text.ts";

export interface TextOutput {
  write(text: string): void;
  readonly isTTY: boolean;
  /** Columns of a terminal. */
  readonly columns: number;
}

export type StopSignal = "SIGINT" | "SIGTERM";

export interface CliIo {
  /** The product and nothing else: text, table, JSON. */
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
  readStdin(): Promise<string>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly version: string;
  spawnEngine(): EngineClient;
  /** Reads the tokenizer and template of a loaded model's folder. */
  loadText(dir: string): Promise<TextSource>;
  /** Calls back on Ctrl-C and SIGTERM until the returned function is called. */
  onSignal(handler: (signal: StopSignal) => void): () => void;
  /** Ends the process at once. */
  exitNow(code: number): void;
}

/** One line on stderr. */
export function say(io: Pick<CliIo, "stderr">, line: string): void {
  io.stderr.write(`${line}\n`);
}
