/** Reads a Python list of calls with literal arguments: `[f(a="x", n=3), g.h()]`. Values come as JSON text. */
import type { CallableTools, ParsedCall } from "./events.ts";
import { listText, numberText, objectText } from "./json-text.ts";
import { pythonString } from "./python-string.ts";

export interface PythonCalls {
  /** The calls up to the first fault. */
  readonly calls: readonly ParsedCall[];
  /** The list was closed and nothing stands behind it. */
  readonly isWhole: boolean;
}

/** @param text begins with the list's bracket, perhaps after blanks */
export function readPythonCalls(text: string, tools: CallableTools): PythonCalls {
  return new Reader(text, tools).calls();
}

/** Deeper values are refused. */
const DEPTH_MAX = 200;
const NAME = /[A-Za-z_][\w.-]*/y;
const WORD = /[A-Za-z_]\w*/y;
const KEYWORD = /([A-Za-z_]\w*)\s*=(?!=)/y;
const NUMBER = /[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?/y;

const WORDS: ReadonlyMap<string, string> = new Map([
  ["True", "true"],
  ["False", "false"],
  ["None", "null"],
  ["true", "true"],
  ["false", "false"],
  ["null", "null"],
]);

class Reader {
  private at = 0;

  constructor(
    private readonly text: string,
    private readonly tools: CallableTools,
  ) {}

  calls(): PythonCalls {
    const calls: ParsedCall[] = [];
    if (!this.takes("[")) return { calls, isWhole: false };
    while (!this.takes("]")) {
      const call = this.call();
      if (call === null) return { calls, isWhole: false };
      calls.push(call);
      if (!this.isBetween("]")) return { calls, isWhole: false };
    }
    this.skipBlanks();
    return { calls, isWhole: this.at === this.text.length && calls.length > 0 };
  }

  private call(): ParsedCall | null {
    const name = this.match(NAME)?.[0];
    if (name === undefined || !this.takes("(")) return null;
    const members = new Map<string, string>();
    const positions = propertyNames(this.tools.get(name)?.parameters);
    let position = 0;
    while (!this.takes(")")) {
      const key = this.match(KEYWORD)?.[1] ?? positions[position++];
      const value = this.value(0);
      if (key === undefined || value === null || !this.isBetween(")")) return null;
      members.set(key, value);
    }
    return { name, arguments: objectText(members) };
  }

  private value(depth: number): string | null {
    if (depth > DEPTH_MAX) return null;
    this.skipBlanks();
    const head = this.text.charAt(this.at);
    if (head === "'" || head === '"') return this.string();
    if (this.takes("[")) return this.list("]", depth + 1);
    if (this.takes("(")) return this.list(")", depth + 1);
    if (this.takes("{")) return this.dict(depth + 1);
    const number = this.match(NUMBER)?.[0];
    if (number !== undefined) return numberText(number.replaceAll("_", ""));
    return WORDS.get(this.match(WORD)?.[0] ?? "") ?? null;
  }

  /** A list, or what stands in round brackets: a tuple, or one value if no comma follows it. */
  private list(end: string, depth: number): string | null {
    const items: string[] = [];
    let commas = 0;
    while (!this.takes(end)) {
      const value = this.value(depth);
      if (value === null) return null;
      items.push(value);
      if (this.takes(",")) commas += 1;
      else if (!this.sees(end)) return null;
    }
    const only = items[0];
    return end === ")" && commas === 0 && only !== undefined ? only : listText(items);
  }

  private dict(depth: number): string | null {
    const members = new Map<string, string>();
    while (!this.takes("}")) {
      const key = this.value(depth);
      if (key === null || !this.takes(":")) return null;
      const value = this.value(depth);
      if (value === null || !this.isBetween("}")) return null;
      const parsed: unknown = JSON.parse(key);
      members.set(typeof parsed === "string" ? parsed : key, value);
    }
    return objectText(members);
  }

  private string(): string | null {
    const read = pythonString(this.text, this.at);
    if (read === null) return null;
    this.at = read.end;
    return JSON.stringify(read.value);
  }

  /** A comma, which may also be the last thing, or the end. */
  private isBetween(end: string): boolean {
    return this.takes(",") || this.sees(end);
  }

  private sees(literal: string): boolean {
    this.skipBlanks();
    return this.text.startsWith(literal, this.at);
  }

  private takes(literal: string): boolean {
    if (!this.sees(literal)) return false;
    this.at += literal.length;
    return true;
  }

  private match(pattern: RegExp): RegExpExecArray | null {
    this.skipBlanks();
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found !== null) this.at = pattern.lastIndex;
    return found;
  }

  private skipBlanks(): void {
    while (/\s/.test(this.text.charAt(this.at))) this.at += 1;
  }
}

/** Names of a tool's parameters in the schema's order. */
function propertyNames(schema: object | undefined): readonly string[] {
  const properties: unknown =
    schema instanceof Map ? schema.get("properties") : schema && Reflect.get(schema, "properties");
  if (properties instanceof Map) return [...properties.keys()].map(String);
  return typeof properties === "object" && properties !== null ? Object.keys(properties) : [];
}
