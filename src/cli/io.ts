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
/** What a terminal or a parent may send to a command that runs another program. */
export type ForwardedSignal = StopSignal | "SIGHUP" | "SIGWINCH";

export const STOP_SIGNALS: readonly StopSignal[] = ["SIGINT", "SIGTERM"];

export interface CliIo {
  /** The product and nothing else: text, table, JSON. */
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
  readStdin(): Promise<string>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly version: string;
  /** The words that start this program once more. */
  readonly self: readonly string[];
  /** stdin is a terminal, which sends its Ctrl-C to every program in it. */
  readonly interactive: boolean;
  spawnEngine(): EngineClient;
  /** Reads the tokenizer and template of a loaded model's folder. */
  loadText(dir: string): Promise<TextSource>;
  /** Calls back on these signals until the returned function is called. */
  onSignal<S extends ForwardedSignal>(names: readonly S[], handler: (signal: S) => void): () => void;
  /** Ends the process at once. */
  exitNow(code: number): void;
}

/** One line on stderr. */
export function say(io: Pick<CliIo, "stderr">, line: string): void {
  io.stderr.write(`${line}\n`);
}
