/**
 * A strict JSON reader for files we did not write: positions in its errors, duplicate keys refused on request, bare
 * NaN/Infinity/-Infinity (Python writes them into config.json) accepted on request, depth limited.
 * Objects have no prototype, so a key such as "__proto__" is data. Grammar: RFC 8259.
 */

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: JsonValue | undefined;
}

export interface JsonOptions {
  /** Refuse an object that has one key twice; otherwise the last one wins, as in JSON.parse. */
  readonly uniqueKeys: boolean;
  /** Accept the tokens NaN, Infinity and -Infinity as numbers. */
  readonly nonFinite: boolean;
}

/** Where and why a text is not JSON. `position` counts UTF-16 units from 0. */
export class JsonSyntaxError extends Error {
  override readonly name = "JsonSyntaxError";
  constructor(
    reason: string,
    readonly position: number,
  ) {
    super(`${reason} at position ${position}`);
  }
}

const DEPTH_MAX = 128;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
/** A run of string characters that need no decoding: anything but quote, backslash and control characters. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what JSON strings may not hold
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};
const NON_FINITE: readonly (readonly [string, number])[] = [
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
];

/** True for a JSON object (not null, not an array). */
export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Parses one JSON text; only blanks may follow the value.
 * @throws JsonSyntaxError
 */
export function parseJson(text: string, options: JsonOptions): JsonValue {
  const reader = new Reader(text, options);
  const value = reader.value(0);
  reader.end();
  return value;
}

class Reader {
  private at = 0;

  constructor(
    private readonly text: string,
    private readonly options: JsonOptions,
  ) {}

  value(depth: number): JsonValue {
    if (depth > DEPTH_MAX) this.fail(`nested deeper than ${DEPTH_MAX}`);
    this.blanks();
    const c = this.text[this.at];
    if (c === "{") return this.object(depth);
    if (c === "[") return this.array(depth);
    if (c === '"') return this.string();
    if (this.word("true")) return true;
    if (this.word("false")) return false;
    if (this.word("null")) return null;
    if (this.options.nonFinite) {
      for (const [word, number] of NON_FINITE) if (this.word(word)) return number;
    }
    return this.number();
  }

  end(): void {
    this.blanks();
    if (this.at < this.text.length) this.fail("unexpected text after the value");
  }

  private object(depth: number): JsonObject {
    const out: Record<string, JsonValue> = Object.create(null);
    this.at++;
    this.blanks();
    if (this.take("}")) return out;
    do {
      this.blanks();
      const start = this.at;
      if (this.text[this.at] !== '"') this.fail("expected a key");
      const key = this.string();
      if (this.options.uniqueKeys && key in out) {
        throw new JsonSyntaxError(`key ${JSON.stringify(key)} appears twice, the second time`, start);
      }
      this.blanks();
      if (!this.take(":")) this.fail("expected ':'");
      out[key] = this.value(depth + 1);
      this.blanks();
    } while (this.take(","));
    if (!this.take("}")) this.fail("expected ',' or '}'");
    return out;
  }

  private array(depth: number): JsonValue[] {
    const out: JsonValue[] = [];
    this.at++;
    this.blanks();
    if (this.take("]")) return out;
    do {
      out.push(this.value(depth + 1));
      this.blanks();
    } while (this.take(","));
    if (!this.take("]")) this.fail("expected ',' or ']'");
    return out;
  }

  private string(): string {
    this.at++;
    let out = "";
    for (;;) {
      PLAIN.lastIndex = this.at;
      const run = PLAIN.exec(this.text)?.[0] ?? "";
      out += run;
      this.at += run.length;
      const c = this.text[this.at];
      if (c === '"') {
        this.at++;
        return out;
      }
      if (c !== "\\") this.fail(c === undefined ? "unterminated string" : "control character in a string");
      out += this.escape();
    }
  }

  private escape(): string {
    const c = this.text[this.at + 1] ?? "";
    if (c === "u") {
      const hex = this.text.slice(this.at + 2, this.at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(hex)) this.fail("bad \\u escape");
      this.at += 6;
      return String.fromCharCode(Number.parseInt(hex, 16));
    }
    const plain = ESCAPES[c];
    if (plain === undefined) this.fail("bad escape");
    this.at += 2;
    return plain;
  }

  private number(): number {
    NUMBER.lastIndex = this.at;
    const match = NUMBER.exec(this.text)?.[0];
    if (match === undefined) this.fail(this.at < this.text.length ? "expected a value" : "unexpected end");
    this.at += match.length;
    return Number(match);
  }

  private word(word: string): boolean {
    if (!this.text.startsWith(word, this.at)) return false;
    this.at += word.length;
    return true;
  }

  private take(c: string): boolean {
    if (this.text[this.at] !== c) return false;
    this.at++;
    return true;
  }

  private blanks(): void {
    for (;;) {
      const c = this.text.charCodeAt(this.at);
      if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) return;
      this.at++;
    }
  }

  private fail(reason: string): never {
    throw new JsonSyntaxError(reason, this.at);
  }
}
