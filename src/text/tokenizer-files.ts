/**
 * The files of a model folder that say how text becomes ids: `tokenizer.json` (required), and what
 * `tokenizer_config.json`, `special_tokens_map.json` and `generation_config.json` add about special tokens.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { TokenizerError } from "./tokenizer-error.ts";
import { isObject, type JsonObject, objectsOf, stringOf } from "./tokenizer-json.ts";

export interface TokenizerFiles {
  /** `tokenizer.json`. */
  readonly tokenizer: JsonObject;
  /** `tokenizer_config.json`, `{}` if absent. */
  readonly config: JsonObject;
  /** `special_tokens_map.json`, `{}` if absent. */
  readonly specialTokensMap: JsonObject;
  /** `generation_config.json`, `{}` if absent. */
  readonly generationConfig: JsonObject;
}

/** One entry of `added_tokens`. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
  /** The token takes the white space before (after) it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** Matches only where no letter or digit touches it. */
  readonly singleWord: boolean;
  /** Matched after the normalizer ran. */
  readonly normalized: boolean;
}

/** Strings of the named special tokens; null when the model has none. */
export interface SpecialTokens {
  readonly bos: string | null;
  readonly eos: string | null;
  readonly pad: string | null;
  readonly unk: string | null;
  readonly additional: readonly string[];
}

/**
 * Reads the folder's tokenizer files.
 * @throws TokenizerError when `tokenizer.json` is missing or a file is not a JSON object.
 */
export async function readTokenizerFiles(dir: string): Promise<TokenizerFiles> {
  const tokenizer = await readObject(dir, "tokenizer.json");
  if (tokenizer === null) throw new TokenizerError(await explainMissing(dir));
  return {
    tokenizer,
    config: (await readObject(dir, "tokenizer_config.json")) ?? {},
    specialTokensMap: (await readObject(dir, "special_tokens_map.json")) ?? {},
    generationConfig: (await readObject(dir, "generation_config.json")) ?? {},
  };
}

/** The added tokens of `tokenizer.json`, and those that only `tokenizer_config.json` knows. */
export function addedTokensOf(files: TokenizerFiles): AddedToken[] {
  const tokens: AddedToken[] = [];
  const known = new Set<string>();
  const add = (id: unknown, entry: JsonObject) => {
    const content = stringOf(entry.content);
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || !content || known.has(content)) return;
    known.add(content);
    const special = entry.special === true;
    tokens.push({
      id,
      content,
      special,
      lstrip: entry.lstrip === true,
      rstrip: entry.rstrip === true,
      singleWord: entry.single_word === true,
      normalized: typeof entry.normalized === "boolean" ? entry.normalized : !special,
    });
  };
  for (const entry of objectsOf(files.tokenizer.added_tokens)) add(entry.id, entry);
  const more = files.config.added_tokens_decoder;
  if (isObject(more)) {
    for (const [id, entry] of Object.entries(more)) if (isObject(entry)) add(Number(id), entry);
  }
  return tokens;
}

/** bos, eos, pad and unk as `tokenizer_config.json` names them, else `special_tokens_map.json`. */
export function specialTokensOf(files: TokenizerFiles): SpecialTokens {
  const named = (key: string) => tokenString(files.config[key]) ?? tokenString(files.specialTokensMap[key]);
  const additional = files.config.additional_special_tokens ?? files.specialTokensMap.additional_special_tokens;
  return {
    bos: named("bos_token"),
    eos: named("eos_token"),
    pad: named("pad_token"),
    unk: named("unk_token"),
    additional: Array.isArray(additional) ? additional.map(tokenString).filter((token) => token !== null) : [],
  };
}

/** A token is written as its string or as an object with `content`. */
function tokenString(value: unknown): string | null {
  return isObject(value) ? stringOf(value.content) : stringOf(value);
}

async function readObject(dir: string, name: string): Promise<JsonObject | null> {
  let text: string;
  try {
    text = await readFile(join(dir, name), "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw new TokenizerError(`cannot read ${name}: ${messageOf(error)}`);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new TokenizerError(`${name} is not JSON: ${messageOf(error)}`);
  }
  if (!isObject(value)) throw new TokenizerError(`${name} is not a JSON object`);
  return value;
}

async function explainMissing(dir: string): Promise<string> {
  const names = await readdir(dir).catch((): string[] => []);
  if (!names.includes("tokenizer.model")) return `no tokenizer.json in ${dir}`;
  return (
    `${dir} has a SentencePiece tokenizer.model but no tokenizer.json: convert it with transformers ` +
    "(AutoTokenizer.from_pretrained(folder).save_pretrained(folder))"
  );
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
