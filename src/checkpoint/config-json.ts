/**
 * `config.json` and `generation_config.json` of a model folder. Python writes non-finite floats bare (NaN, Infinity,
 * -Infinity) or as {"__float__": "Infinity"}: both are numbers here. Every access that finds the wrong thing throws a
 * CheckpointError that names the file and the full key. models-dense.md §1.1.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { CheckpointError } from "./errors.ts";
import { isJsonObject, type JsonObject, JsonSyntaxError, type JsonValue, parseJson } from "./json.ts";
import { readExact, withFile } from "./positional-read.ts";

const CONFIG_BYTES_MAX = 64 << 20;
const FLOATS: ReadonlyMap<string, number> = new Map([
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
  ["NaN", Number.NaN],
]);

/**
 * One JSON object of a config file with typed reads. A key whose value is null counts as absent.
 * `int(key)` throws when the key is absent; `int(key, fallback)` does not; both throw on another type.
 */
export class ConfigSection {
  constructor(
    /** File that the object comes from, for messages. */
    readonly file: string,
    readonly json: JsonObject,
    /** Dotted path of this object inside the file; "" at the top. */
    readonly prefix: string = "",
  ) {}

  /** True when the key is there and not null. */
  has(key: string): boolean {
    return this.value(key) !== undefined;
  }

  /** The raw value; undefined when absent or null. */
  value(key: string): JsonValue | undefined {
    const value = Object.hasOwn(this.json, key) ? this.json[key] : undefined;
    return value === null ? undefined : value;
  }

  keys(): string[] {
    return Object.keys(this.json);
  }

  number<F = number>(key: string, ...fallback: [F?]): number | F {
    return this.read(key, "a number", fallback, (v): v is number => typeof v === "number");
  }

  /** A safe integer; 3.0 counts as 3. */
  int<F = number>(key: string, ...fallback: [F?]): number | F {
    return this.read(key, "an integer", fallback, (v): v is number => Number.isSafeInteger(v));
  }

  /** An integer ≥ 1: a size or a count. */
  size<F = number>(key: string, ...fallback: [F?]): number | F {
    const isSize = (v: JsonValue): v is number => typeof v === "number" && Number.isSafeInteger(v) && v > 0;
    return this.read(key, "a positive integer", fallback, isSize);
  }

  bool<F = boolean>(key: string, ...fallback: [F?]): boolean | F {
    return this.read(key, "true or false", fallback, (v): v is boolean => typeof v === "boolean");
  }

  string<F = string>(key: string, ...fallback: [F?]): string | F {
    return this.read(key, "a string", fallback, (v): v is string => typeof v === "string");
  }

  numbers<F = readonly number[]>(key: string, ...fallback: [F?]): readonly number[] | F {
    const isList = (v: JsonValue): v is readonly number[] => Array.isArray(v) && v.every((x) => typeof x === "number");
    return this.read(key, "a list of numbers", fallback, isList);
  }

  strings<F = readonly string[]>(key: string, ...fallback: [F?]): readonly string[] | F {
    const isList = (v: JsonValue): v is readonly string[] => Array.isArray(v) && v.every((x) => typeof x === "string");
    return this.read(key, "a list of strings", fallback, isList);
  }

  /** The nested object, or null when absent. Throws when the value is something else. */
  section(key: string): ConfigSection | null {
    const value = this.value(key);
    if (value === undefined) return null;
    if (!isJsonObject(value)) return this.fail(key, `must be an object, found ${describe(value)}`);
    return new ConfigSection(this.file, value, this.path(key));
  }

  /** Throws the error that a reader of this key reports. */
  fail(key: string, message: string): never {
    throw new CheckpointError({ file: this.file, check: "config", message: `key ${this.path(key)}: ${message}` });
  }

  private path(key: string): string {
    return this.prefix === "" ? key : `${this.prefix}.${key}`;
  }

  private read<T extends JsonValue, F>(
    key: string,
    what: string,
    fallback: readonly [F?],
    is: (value: JsonValue) => value is T,
  ): T | F {
    const value = this.value(key);
    if (value === undefined) {
      if (fallback.length > 0) return fallback[0] as F;
      return this.fail(key, `is required (${what})`);
    }
    return is(value) ? value : this.fail(key, `must be ${what}, found ${describe(value)}`);
  }
}

export interface ModelConfig {
  readonly config: ConfigSection;
  /** null when the file is absent or malformed (it is then ignored, with a note). */
  readonly generation: ConfigSection | null;
  /** eos ids of generation_config.json, else of config.json (or its text_config); the tokenizer's own are added by the text side. */
  readonly eosIds: readonly number[];
  readonly notes: readonly string[];
}

/**
 * Reads config.json (required) and generation_config.json (optional, ignored when malformed) of `dir`.
 * @throws CheckpointError
 */
export function readModelConfig(dir: string): ModelConfig {
  const config = readJsonSection(path.join(dir, "config.json"));
  const notes: string[] = [];
  const file = path.join(dir, "generation_config.json");
  let generation: ConfigSection | null = null;
  if (existsSync(file)) {
    try {
      generation = readJsonSection(file);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      notes.push(`${error.message}; the file is ignored`);
    }
  }
  return { config, generation, eosIds: eosTokenIds(config, generation), notes };
}

/**
 * Reads one JSON file whose top is an object.
 * @throws CheckpointError
 */
export function readJsonSection(file: string): ConfigSection {
  const text = withFile(file, (fd, { size }) => {
    if (size > CONFIG_BYTES_MAX)
      throw new CheckpointError({ file, check: "config", message: `is too large (${size} bytes)` });
    const raw = new Uint8Array(size);
    readExact(fd, file, raw, 0);
    return new TextDecoder().decode(raw);
  });
  return parseConfigText(text, file);
}

/**
 * Parses the text of a config file. `file` is only used in messages.
 * @throws CheckpointError
 */
export function parseConfigText(text: string, file: string): ConfigSection {
  try {
    const json = decodeFloats(parseJson(text, { uniqueKeys: false, nonFinite: true }));
    if (isJsonObject(json)) return new ConfigSection(file, json);
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    throw new CheckpointError({ file, check: "config", message: `is not valid JSON: ${error.message}` });
  }
  throw new CheckpointError({ file, check: "config", message: "is not a JSON object" });
}

/**
 * A truthy `eos_token_id` (id or list) of the generation config replaces the one of the model config; that of a nested
 * text_config counts where the top level has none. Ids are unique, in file order.
 */
export function eosTokenIds(config: ConfigSection, generation: ConfigSection | null): number[] {
  const text = config.value("text_config");
  const nested = isJsonObject(text) ? new ConfigSection(config.file, text, "text_config") : null;
  for (const [section, zeroCounts] of [
    [generation, false],
    [config, true],
    [nested, true],
  ] as const) {
    const ids = section === null ? [] : idsOf(section, zeroCounts);
    if (ids.length > 0) return ids;
  }
  return [];
}

function idsOf(section: ConfigSection, zeroCounts: boolean): number[] {
  const value = section.value("eos_token_id");
  if (value === undefined || (value === 0 && !zeroCounts)) return [];
  const list: readonly JsonValue[] = Array.isArray(value) ? value : [value as JsonValue];
  const isId = (id: JsonValue): id is number => typeof id === "number" && Number.isSafeInteger(id) && id >= 0;
  if (!list.every(isId)) return section.fail("eos_token_id", "must be a token id or a list of token ids");
  return [...new Set(list)];
}

function decodeFloats(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(decodeFloats);
  if (!isJsonObject(value)) return value;
  const entries = Object.entries(value);
  const [first] = entries;
  if (entries.length === 1 && first?.[0] === "__float__" && typeof first[1] === "string") {
    const number = FLOATS.get(first[1]);
    if (number !== undefined) return number;
  }
  const out: Record<string, JsonValue> = Object.create(null);
  for (const [key, inner] of entries) if (inner !== undefined) out[key] = decodeFloats(inner);
  return out;
}

function describe(value: JsonValue): string {
  const text = typeof value === "number" ? String(value) : JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}
