/** Reads the keywords of one schema, without its references and combinators: what each may be, and which are not enforced. */
import { AutomatonTooLarge } from "./automaton.ts";
import { GrammarError } from "./errors.ts";
import { type Conjunction, emptyFlat, type FlatSchema, type Span, type TypeName } from "./flat-schema.ts";
import { formatPattern } from "./formats.ts";
import { isJsonArray, isJsonObject, type Json, type JsonObject, pointerTo } from "./json-tree.ts";
import { regexAutomaton } from "./regex-automaton.ts";
import { parseRegex } from "./regex-parser.ts";
import { RegexError } from "./regex-tree.ts";
import type { Bound } from "./shapes.ts";

const TYPES: ReadonlySet<string> = new Set(["null", "boolean", "integer", "number", "string", "array", "object"]);

/** Keywords that restrict values in a way that no grammar of ours holds. */
const UNSUPPORTED = [
  "uniqueItems",
  "contains",
  "minContains",
  "maxContains",
  "multipleOf",
  "not",
  "if",
  "then",
  "else",
  "dependentRequired",
  "dependentSchemas",
  "dependencies",
  "patternProperties",
  "$dynamicRef",
  "$recursiveRef",
] as const;

/** Lower limits above are not enforced: each counts as a rule of its own (§4). */
export const COUNT_MAX = 64;
/**
 * Longest string that is counted by rules where there is a counter beside the grammar: every length is a rule that the
 * engine looks at with the whole vocabulary (some 20 ms each at 49,152 tokens, November 2026).
 */
export const LENGTH_MAX = 32;

/** Notes what is not enforced; when the schema is to be strict, refuses it. */
export type Relax = (pointer: string, what: string) => void;

/** @throws GrammarError with the pointer of what is wrong */
export function readKeywords(words: JsonObject, pointer: string, relax: Relax): FlatSchema {
  const reader = new Keywords(words, pointer, relax);
  return reader.flat();
}

class Keywords {
  constructor(
    private readonly words: JsonObject,
    private readonly pointer: string,
    private readonly relax: Relax,
  ) {}

  flat(): FlatSchema {
    this.noteUnsupported();
    return {
      ...emptyFlat(this.pointer),
      types: this.types(),
      values: this.values(),
      ...this.members(),
      ...this.elements(),
      patterns: [...this.pattern(), ...this.format()],
      length: this.span("minLength", "maxLength"),
      itemCount: this.span("minItems", "maxItems"),
      memberCount: this.span("minProperties", "maxProperties"),
      ...this.bounds(),
    };
  }

  private noteUnsupported(): void {
    for (const keyword of UNSUPPORTED) {
      const value = this.words.get(keyword);
      if (value === undefined || (keyword === "uniqueItems" && value === false)) continue;
      this.relax(this.at(keyword), `'${keyword}' is not supported`);
    }
    if (this.words.has("unevaluatedProperties") && this.words.get("unevaluatedProperties") !== false) {
      this.relax(this.at("unevaluatedProperties"), "'unevaluatedProperties' is not supported but as false");
    }
  }

  private types(): ReadonlySet<TypeName> | null {
    const given = this.words.get("type");
    const nullable = this.words.get("nullable") === true;
    if (given === undefined) return null;
    const names = isJsonArray(given) ? given : [given];
    if (names.length === 0) throw this.wrong("type", "names no type");
    const types = new Set<TypeName>(nullable ? ["null"] : []);
    for (const name of names) {
      if (!isTypeName(name)) throw this.wrong("type", `unknown type ${JSON.stringify(name)?.slice(0, 40) ?? ""}`);
      types.add(name);
    }
    return types;
  }

  private values(): readonly Json[] | null {
    const list = this.words.get("enum");
    const only = this.words.get("const");
    if (list !== undefined && (!isJsonArray(list) || list.length === 0)) {
      throw this.wrong("enum", "must be a list of at least one value");
    }
    if (only === undefined) return isJsonArray(list) ? this.withNull(list) : null;
    return isJsonArray(list)
      ? list.filter((value) => JSON.stringify(value) === JSON.stringify(only))
      : this.withNull([only]);
  }

  private withNull(values: readonly Json[]): readonly Json[] {
    return this.words.get("nullable") === true && !values.includes(null) ? [...values, null] : values;
  }

  private members(): Pick<FlatSchema, "properties" | "required" | "others" | "names"> {
    const given = this.words.get("properties");
    if (given !== undefined && !isJsonObject(given)) throw this.wrong("properties", "must be an object");
    const properties = new Map<string, Conjunction>();
    for (const [name, schema] of isJsonObject(given) ? given : []) {
      const pointer = pointerTo(this.pointer, "properties", name);
      if (schema === false) throw new GrammarError(pointer, "no value can match false");
      properties.set(name, [{ schema, pointer }]);
    }
    const names = this.words.get("propertyNames");
    return {
      properties,
      required: this.required(),
      others: this.places("additionalProperties"),
      names: names === undefined ? [] : [{ schema: names, pointer: this.at("propertyNames") }],
    };
  }

  private required(): readonly string[] {
    const given = this.words.get("required");
    // `required: true` inside a property was draft 3; OpenAI's clients still write it at times.
    if (given === undefined || typeof given === "boolean") return [];
    if (!isJsonArray(given) || !given.every((name) => typeof name === "string")) {
      throw this.wrong("required", "must be a list of names");
    }
    return given.map(String);
  }

  private elements(): Pick<FlatSchema, "prefix" | "items"> {
    const items = this.words.get("items");
    const isTuple = isJsonArray(items);
    const key = isTuple ? "items" : "prefixItems";
    const tuple = this.words.get(key);
    if (tuple !== undefined && !isJsonArray(tuple)) throw this.wrong(key, "must be a list of schemas");
    const prefix = (isJsonArray(tuple) ? tuple : []).map((schema, i) => {
      const pointer = pointerTo(this.pointer, key, i);
      if (schema === false) throw new GrammarError(pointer, "no value can match false");
      return [{ schema, pointer }];
    });
    const rest = this.places(isTuple ? "additionalItems" : "items") ?? this.places("unevaluatedItems");
    return { prefix, items: rest };
  }

  private places(keyword: string): Conjunction | null {
    const schema = this.words.get(keyword);
    return schema === undefined ? null : [{ schema, pointer: this.at(keyword) }];
  }

  private pattern(): FlatSchema["patterns"] {
    const source = this.words.get("pattern");
    if (source === undefined) return [];
    if (typeof source !== "string") throw this.wrong("pattern", "must be a string");
    try {
      return [regexAutomaton(parseRegex(source))];
    } catch (error) {
      if (!(error instanceof RegexError || error instanceof AutomatonTooLarge)) throw error;
      if (error.message.startsWith("not a regular expression")) throw this.wrong("pattern", error.message);
      this.relax(this.at("pattern"), error.message);
      return [];
    }
  }

  private format(): FlatSchema["patterns"] {
    const name = this.words.get("format");
    if (name === undefined) return [];
    if (typeof name !== "string") throw this.wrong("format", "must be a string");
    const pattern = formatPattern(name);
    if (pattern !== null) return [regexAutomaton(parseRegex(pattern))];
    // Formats of numbers say how they are stored.
    if (!/^(u?int\d+|float|double)$/.test(name)) this.relaxQuietly("format");
    return [];
  }

  /** An unknown format is no error even in a strict schema: it is an annotation. */
  private relaxQuietly(keyword: string): void {
    this.relax(this.at(keyword), "");
  }

  private span(minWord: string, maxWord: string): Span {
    const min = this.count(minWord) ?? 0;
    const max = this.count(maxWord);
    if (max !== null && min > max) throw this.wrong(minWord, `is above ${maxWord}`);
    if (min <= COUNT_MAX) return { min, max };
    this.relaxQuietly(minWord);
    return { min: COUNT_MAX, max };
  }

  private count(keyword: string): number | null {
    const value = this.words.get(keyword);
    if (value === undefined) return null;
    if (typeof value !== "number" || !Number.isInteger(value) || value < 0) {
      throw this.wrong(keyword, "must be a whole number, 0 or more");
    }
    return value;
  }

  private bounds(): Pick<FlatSchema, "min" | "max"> {
    const min = this.bound("minimum", "exclusiveMinimum", (a, b) => a > b);
    const max = this.bound("maximum", "exclusiveMaximum", (a, b) => a < b);
    if (min !== null && max !== null) {
      const apart = max.value - min.value;
      if (apart < 0 || (apart === 0 && (min.exclusive || max.exclusive))) {
        throw this.wrong(min.exclusive ? "exclusiveMinimum" : "minimum", "is above the maximum");
      }
    }
    return { min, max };
  }

  private bound(including: string, excluding: string, tighter: (a: number, b: number) => boolean): Bound | null {
    const [a, b] = [this.number(including), this.number(excluding)];
    if (b !== null && (a === null || !tighter(a, b))) return { value: b, exclusive: true };
    return a === null ? null : { value: a, exclusive: false };
  }

  private number(keyword: string): number | null {
    const value = this.words.get(keyword);
    if (value === undefined) return null;
    if (typeof value !== "number" || !Number.isFinite(value)) throw this.wrong(keyword, "must be a number");
    return value;
  }

  private at(keyword: string): string {
    return pointerTo(this.pointer, keyword);
  }

  private wrong(keyword: string, what: string): GrammarError {
    return new GrammarError(this.at(keyword), what);
  }
}

function isTypeName(value: Json): value is TypeName {
  return typeof value === "string" && TYPES.has(value);
}
