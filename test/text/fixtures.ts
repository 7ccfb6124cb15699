/**
 * The small tokenizers of `test/data/text` (one per pipeline kind) with ids and texts that the Rust `tokenizers`
 * library gave for them; `generate_tokenizers.py` of the specification made both.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { TextTokenizer, type TokenizerOptions } from "../../src/text/tokenizer.ts";
import type { JsonObject } from "../../src/text/tokenizer-json.ts";

export const KINDS = ["qwen", "llama3", "gemma", "llama2", "metaspace"] as const;
export type Kind = (typeof KINDS)[number];

export const DATA = join(import.meta.dir, "../data/text");
/** The specification beside the repository; tests that need it are skipped where it is absent. */
export const SHARED = join(import.meta.dir, "../../../shared");

interface KindCases {
  readonly ids: readonly (readonly number[])[];
  readonly text: readonly string[];
  readonly random_ids: readonly (readonly number[])[];
  readonly random_text: readonly string[];
}

export interface TokenizerCases {
  readonly cases: readonly string[];
  readonly tokenizers: Readonly<Record<Kind, KindCases>>;
}

export const CASES: TokenizerCases = JSON.parse(readFileSync(join(DATA, "tokenizer-cases.json"), "utf8"));

export function tokenizerJson(kind: Kind): JsonObject {
  return JSON.parse(readFileSync(join(DATA, `tok_${kind}.json`), "utf8"));
}

export function tokenizerOf(json: JsonObject, config: JsonObject = {}, options: TokenizerOptions = {}): TextTokenizer {
  return new TextTokenizer({ tokenizer: json, config, specialTokensMap: {}, generationConfig: {} }, options);
}

export function fixtureTokenizer(kind: Kind): TextTokenizer {
  return tokenizerOf(tokenizerJson(kind));
}

/** Decodes id by id and checks on the way that no piece ends inside a character. */
export function decode(tokenizer: TextTokenizer, ids: readonly number[], atTextStart: boolean): string {
  const detokenizer = tokenizer.detokenizer({ atTextStart });
  let text = "";
  for (const piece of [...ids.map((id) => detokenizer.push(id)), detokenizer.flush()]) {
    if (!piece.isWellFormed()) throw new Error(`half a character in ${JSON.stringify(piece)}`);
    text += piece;
  }
  return text;
}
