/** Where `generate`'s prompt comes from: the words themselves, stdin (`-`), or a file (`@path`, `--prompt-file`). */
import { readFile } from "node:fs/promises";
import { usageError } from "./errors.ts";
import type { CliIo } from "./io.ts";

const DEFAULT_PROMPT = "Explain how rainbows form, in a few sentences.";

/** The prompt's text. `@@…` is a prompt that begins with one `@`. Throws a usage error for a file it cannot read. */
export async function readPrompt(prompt: string | null, file: string | null, io: CliIo): Promise<string> {
  if (prompt !== null && file !== null) throw usageError("give either --prompt or --prompt-file, not both");
  if (file !== null) return readTextFile(file);
  if (prompt === null) return DEFAULT_PROMPT;
  if (prompt === "-") return io.readStdin();
  if (prompt.startsWith("@@")) return prompt.slice(1);
  if (prompt.startsWith("@")) return readTextFile(prompt.slice(1));
  return prompt;
}

async function readTextFile(path: string): Promise<string> {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await readFile(path));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw usageError(`cannot read the prompt file '${path}': ${reason}`);
  }
}
