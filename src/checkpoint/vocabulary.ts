/**
 * How many ids a folder's tokenizer knows: rows of the head beyond it are padding, which no mode may choose. Only the
 * ids are looked at; tokenizing itself is `src/text/`'s.
 */
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

interface TokenizerJson {
  readonly model?: { readonly vocab?: Readonly<Record<string, number>> | readonly unknown[] };
  readonly added_tokens?: readonly { readonly id: number }[];
}

/** One more than the largest token id; null when there is no readable tokenizer.json. */
export function vocabularySize(dir: string): number | null {
  const file = path.join(dir, "tokenizer.json");
  if (!existsSync(file)) return null;
  let json: TokenizerJson;
  try {
    json = JSON.parse(readFileSync(file, "utf8")) as TokenizerJson;
  } catch (error) {
    // The text side reports a damaged tokenizer with its own error; the engine then only loses the padding mask.
    if (error instanceof SyntaxError) return null;
    throw error;
  }
  let largest = -1;
  const vocab = json.model?.vocab ?? {};
  if (Array.isArray(vocab)) largest = vocab.length - 1;
  else for (const id of Object.values(vocab as Record<string, number>)) if (id > largest) largest = id;
  for (const { id } of json.added_tokens ?? []) if (id > largest) largest = id;
  return largest < 0 ? null : largest + 1;
}
