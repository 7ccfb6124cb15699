/**
 * Values inside JSON text whose spelling counts, read again where they stand (`json-numbers.ts`). All other text is skipped,
 * strings by one search for their end, so that a body of megabytes costs little. The text is known to be JSON.
 */
import { parseJsonKeepingNumbers } from "./json-numbers.ts";

/** Here the value is an object whose numbers and order of members count. */
export const SPELLED_HERE = Symbol("spelled here");
const EACH_ITEM = Symbol("each item");

/** Where such values are: members by their keys, items of a list by `eachItem`. */
export type JsonPlaces =
  | typeof SPELLED_HERE
  | { readonly [key: string]: JsonPlaces; readonly [EACH_ITEM]?: JsonPlaces };

export function eachItem(places: JsonPlaces): JsonPlaces {
  return { [EACH_ITEM]: places };
}

/**
 * Puts the objects at `places` into `value` as they were written.
 * @param value what `JSON.parse` made of `text`; changed in place
 */
export function keepSpelling(text: string, value: object, places: JsonPlaces): void {
  new Walk(text).value(value, places);
}

class Walk {
  private at = 0;

  constructor(private readonly text: string) {}

  /** From a value's start to its end; what is to stand in the place of `value`. */
  value(value: unknown, places: JsonPlaces): unknown {
    const head = this.head();
    if (places === SPELLED_HERE) {
      const start = this.at;
      this.skip();
      return head === "{" ? parseJsonKeepingNumbers(this.text.slice(start, this.at)) : value;
    }
    if (head === "{" && isPlainObject(value)) this.members(value, places);
    else if (head === "[" && Array.isArray(value) && places[EACH_ITEM] !== undefined) {
      this.items(value, places[EACH_ITEM]);
    } else this.skip();
    return value;
  }

  private members(value: Record<string, unknown>, places: Exclude<JsonPlaces, symbol>): void {
    // Of members with one name the last counts.
    const starts = new Map<string, number>();
    this.at += 1;
    while (this.head() !== "}") {
      const key = this.key();
      if (Object.hasOwn(places, key)) starts.set(key, this.at);
      this.skip();
      if (this.head() === ",") this.at += 1;
    }
    const end = this.at + 1;
    for (const [key, start] of starts) {
      const inner = places[key];
      if (inner === undefined) continue;
      this.at = start;
      value[key] = this.value(value[key], inner);
    }
    this.at = end;
  }

  private items(value: unknown[], places: JsonPlaces): void {
    this.at += 1;
    for (let index = 0; this.head() !== "]"; index += 1) {
      value[index] = this.value(value[index], places);
      if (this.head() === ",") this.at += 1;
    }
    this.at += 1;
  }

  /** A key and its colon. */
  private key(): string {
    const start = this.at;
    this.skipString();
    const source = this.text.slice(start, this.at);
    this.head();
    this.at += 1;
    return source.includes("\\") ? String(JSON.parse(source)) : source.slice(1, -1);
  }

  /** Goes to the next character that is not blank, and tells it. */
  private head(): string {
    while (this.text.charCodeAt(this.at) <= 0x20) this.at += 1;
    return this.text.charAt(this.at);
  }

  private skip(): void {
    const head = this.head();
    if (head === '"') this.skipString();
    else if (head === "{" || head === "[") this.skipNested();
    else {
      SCALAR.lastIndex = this.at;
      SCALAR.test(this.text);
      this.at = SCALAR.lastIndex;
    }
  }

  private skipNested(): void {
    let depth = 0;
    do {
      switch (this.text.charCodeAt(this.at)) {
        case 0x22:
          this.skipString();
          continue;
        case 0x7b:
        case 0x5b:
          depth += 1;
          break;
        case 0x7d:
        case 0x5d:
          depth -= 1;
          break;
      }
      this.at += 1;
    } while (depth > 0);
  }

  private skipString(): void {
    let end = this.at;
    do end = this.text.indexOf('"', end + 1);
    while (this.isEscaped(end));
    this.at = end + 1;
  }

  private isEscaped(at: number): boolean {
    let slashes = 0;
    while (this.text.charCodeAt(at - 1 - slashes) === 0x5c) slashes += 1;
    return slashes % 2 === 1;
  }
}

/** A number or a word. */
const SCALAR = /[^\s,\]}]*/y;

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
