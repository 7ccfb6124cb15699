/**
 * Gemma-4's calls: `call:NAME{key:value,…}` with bare keys and strings between `<|"|>`, which know no escapes. Types are the
 * values' own; bare words are text.
 */
import { type BracketGrammar, BracketScanner } from "../bracket-scanner.ts";
import type { CallSyntax } from "../call-scanner.ts";
import type { ParsedCall } from "../events.ts";
import { listText, numberText, objectText } from "../json-text.ts";

const QUOTE = '<|"|>';

const GEMMA4: BracketGrammar = {
  closer: "<tool_call|>",
  head: { partial: /^(?:c|ca|cal|call|call:[^\s{}<>]*)$/, whole: /^call:[^\s{}<>]+\{$/, depth: 1 },
  strings: [{ delimiter: QUOTE, escapes: false }],
  read: (value, isWhole) => {
    const call = readCall(value) ?? (isWhole ? null : readCall(`${value.trimEnd()}}`));
    return call === null ? null : [call];
  },
  readComplete: () => [],
};

export const gemma4Syntax: CallSyntax = { opener: "<|tool_call>", scanner: () => new BracketScanner(GEMMA4) };

function readCall(text: string): ParsedCall | null {
  const brace = text.indexOf("{");
  const reader = new Reader(text, brace);
  const value = reader.value(0);
  return value === null || !reader.isAtEnd ? null : { name: text.slice("call:".length, brace), arguments: value };
}

/** Deeper values are refused. */
const DEPTH_MAX = 200;
const KEY = /\s*([\w$.-]+)\s*:/y;
const BARE = /[^,{}[\]]*/y;

/** Values as JSON text; null for what is none. */
class Reader {
  constructor(
    private readonly text: string,
    private at: number,
  ) {}

  get isAtEnd(): boolean {
    this.skipBlanks();
    return this.at === this.text.length;
  }

  value(depth: number): string | null {
    if (depth > DEPTH_MAX) return null;
    this.skipBlanks();
    if (this.takes("{")) return this.object(depth + 1);
    if (this.takes("[")) return this.list(depth + 1);
    if (this.takes(QUOTE)) return this.string();
    return this.bare();
  }

  private object(depth: number): string | null {
    const members = new Map<string, string>();
    while (!this.takesEnd("}")) {
      KEY.lastIndex = this.at;
      const key = KEY.exec(this.text)?.[1];
      if (key === undefined) return null;
      this.at = KEY.lastIndex;
      const value = this.value(depth);
      if (value === null) return null;
      members.set(key, value);
      if (!this.isBetween("}")) return null;
    }
    return objectText(members);
  }

  private list(depth: number): string | null {
    const items: string[] = [];
    while (!this.takesEnd("]")) {
      const value = this.value(depth);
      if (value === null) return null;
      items.push(value);
      if (!this.isBetween("]")) return null;
    }
    return listText(items);
  }

  private string(): string | null {
    const end = this.text.indexOf(QUOTE, this.at);
    if (end < 0) return null;
    const text = this.text.slice(this.at, end);
    this.at = end + QUOTE.length;
    return JSON.stringify(text);
  }

  private bare(): string | null {
    BARE.lastIndex = this.at;
    const word = BARE.exec(this.text)?.[0].trim() ?? "";
    this.at = BARE.lastIndex;
    if (word === "" || word.includes(QUOTE)) return null;
    if (word === "true" || word === "false" || word === "null") return word;
    // Published templates print the nulls of earlier calls in Python's manner, and models follow them.
    if (word === "None") return "null";
    // `007` is no number but a code.
    const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(word);
    return (isNumber ? numberText(word) : null) ?? JSON.stringify(word);
  }

  /** Behind a member: a comma, which may also be the last thing, or the end. */
  private isBetween(end: string): boolean {
    this.skipBlanks();
    return this.takes(",") || this.text.startsWith(end, this.at);
  }

  private takesEnd(end: string): boolean {
    this.skipBlanks();
    return this.takes(end);
  }

  private takes(literal: string): boolean {
    if (!this.text.startsWith(literal, this.at)) return false;
    this.at += literal.length;
    return true;
  }

  private skipBlanks(): void {
    while (/\s/.test(this.text.charAt(this.at))) this.at += 1;
  }
}
