/**
 * JSON whose numbers stay as they were written: `1.0` is not `1`, and 2^53 + 1 keeps its last digit.
 * Needed where a template prints caller's JSON (tools, call arguments): one changed byte is another prompt.
 * Grammar: RFC 8259, nothing more.
 */

/** A JSON number by its source text. */
export class JsonNumber {
  constructor(readonly source: string) {}

  /** Written without fraction and exponent: an int in Python's eyes. */
  get isInteger(): boolean {
    return /^-?\d+$/.test(this.source);
  }

  /** False when a double cannot hold the integer exactly. */
  get isSafe(): boolean {
    return !this.isInteger || Number.isSafeInteger(Number(this.source));
  }

  valueOf(): number {
    return Number(this.source);
  }

  toString(): string {
    return this.source;
  }

  /** `JSON.stringify` writes the number as it was written. */
  toJSON(): unknown {
    return rawJson(this.source);
  }
}

/**
 * A parsed value. Objects are plain ones, except those with a key that looks like an array index (`"0"`): JavaScript
 * would move such keys to the front, so these come as a `Map` in source order.
 */
export type JsonValue = null | boolean | string | JsonNumber | readonly JsonValue[] | JsonObject;
export type JsonObject = { readonly [key: string]: JsonValue } | ReadonlyMap<string, JsonValue>;

/** Members in source order. `JSON.stringify` writes them all, though not in that order; `stringifyJson` does. */
class OrderedMembers extends Map<string, JsonValue> {
  toJSON(): unknown {
    return Object.fromEntries(this);
  }
}

export interface JsonParseOptions {
  /** What a key that occurs twice in one object does: the last one wins (as `JSON.parse`), or an error. */
  readonly duplicateKeys?: "last" | "error";
}

/** Nesting beyond this is refused, so that hostile text cannot exhaust the stack. */
const DEPTH_MAX = 512;

/** Parses JSON text, keeping the spelling of numbers. Throws `SyntaxError` naming the offset. */
export function parseJsonKeepingNumbers(text: string, options: JsonParseOptions = {}): JsonValue {
  return new Reader(text, options.duplicateKeys === "error").document();
}

/** JSON text without blanks; `JsonNumber`s as written, `Map`s as objects. Values without a JSON form become null. */
export function stringifyJson(value: unknown): string {
  if (value instanceof JsonNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(stringifyJson).join(",")}]`;
  if (value instanceof Map) return objectText(value);
  if (typeof value === "object" && value !== null) return objectText(Object.entries(value));
  return JSON.stringify(value) ?? "null";
}

function objectText(entries: Iterable<readonly [unknown, unknown]>): string {
  const members: string[] = [];
  for (const [key, value] of entries) {
    if (value !== undefined) members.push(`${JSON.stringify(String(key))}:${stringifyJson(value)}`);
  }
  return `{${members.join(",")}}`;
}

function rawJson(source: string): unknown {
  // `JSON.rawJSON` (ES2026) is in the runtime but not yet in TypeScript's library.
  const raw: unknown = Reflect.get(JSON, "rawJSON");
  return typeof raw === "function" ? Reflect.apply(raw, JSON, [source]) : Number(source);
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const BLANK = /[ \t\r\n]*/y;
const INDEX_KEY = /^(?:0|[1-9]\d*)$/;

class Reader {
  private at = 0;
  private depth = 0;

  constructor(
    private readonly text: string,
    private readonly refuseDuplicates: boolean,
  ) {}

  document(): JsonValue {
    const value = this.value();
    this.blanks();
    if (this.at < this.text.length) throw this.error("unexpected text after the value");
    return value;
  }

  private value(): JsonValue {
    this.blanks();
    const head = this.text[this.at];
    if (head === "{") return this.nested(() => this.object());
    if (head === "[") return this.nested(() => this.array());
    if (head === '"') return this.string();
    if (this.take("true")) return true;
    if (this.take("false")) return false;
    if (this.take("null")) return null;
    NUMBER.lastIndex = this.at;
    const number = NUMBER.exec(this.text);
    if (number === null) throw this.error(head === undefined ? "unexpected end" : "unexpected character");
    this.at = NUMBER.lastIndex;
    return new JsonNumber(number[0]);
  }

  private nested<T>(parse: () => T): T {
    this.depth += 1;
    if (this.depth > DEPTH_MAX) throw this.error(`nested deeper than ${DEPTH_MAX} levels`);
    this.at += 1;
    const value = parse();
    this.depth -= 1;
    return value;
  }

  private array(): JsonValue {
    const items: JsonValue[] = [];
    this.blanks();
    if (this.take("]")) return items;
    for (;;) {
      items.push(this.value());
      this.blanks();
      if (this.take("]")) return items;
      if (!this.take(",")) throw this.error("expected ',' or ']'");
    }
  }

  private object(): JsonValue {
    const members = new OrderedMembers();
    this.blanks();
    if (this.take("}")) return {};
    for (;;) {
      this.blanks();
      if (this.text[this.at] !== '"') throw this.error("expected a key in double quotes");
      const key = this.string();
      if (this.refuseDuplicates && members.has(key)) throw this.error(`key ${JSON.stringify(key)} occurs twice`);
      this.blanks();
      if (!this.take(":")) throw this.error("expected ':'");
      members.set(key, this.value());
      this.blanks();
      if (this.take("}")) return plainUnlessReordered(members);
      if (!this.take(",")) throw this.error("expected ',' or '}'");
    }
  }

  private string(): string {
    const start = this.at;
    let end = start + 1;
    for (;;) {
      const code = this.text.charCodeAt(end);
      if (code === 0x22) break;
      if (Number.isNaN(code)) throw this.error("unterminated string");
      end += code === 0x5c ? 2 : 1;
    }
    const source = this.text.slice(start, end + 1);
    try {
      const value: unknown = JSON.parse(source);
      this.at = end + 1;
      return String(value);
    } catch {
      throw this.error("bad string (unknown escape or raw control character)");
    }
  }

  private take(literal: string): boolean {
    if (!this.text.startsWith(literal, this.at)) return false;
    this.at += literal.length;
    return true;
  }

  private blanks(): void {
    BLANK.lastIndex = this.at;
    BLANK.test(this.text);
    this.at = BLANK.lastIndex;
  }

  private error(what: string): SyntaxError {
    return new SyntaxError(`JSON: ${what} at offset ${this.at}`);
  }
}

function plainUnlessReordered(members: Map<string, JsonValue>): JsonObject {
  for (const key of members.keys()) if (INDEX_KEY.test(key)) return members;
  // fromEntries defines own properties, so a key `__proto__` is a key and nothing else.
  return Object.fromEntries(members);
}
