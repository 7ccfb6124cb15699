/** Reads a request's EBNF into a tree; see `user-ebnf.ts` for the notation. */
import { type CharSet, charSet, type Range } from "./charset.ts";
import { GrammarError } from "./errors.ts";

export type EbnfItem =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "class"; readonly set: CharSet; readonly negated: boolean }
  | { readonly kind: "rule"; readonly name: string }
  | { readonly kind: "group"; readonly options: EbnfOptions }
  /** `max` null: no end. */
  | { readonly kind: "repeat"; readonly of: EbnfItem; readonly min: number; readonly max: number | null };

export type EbnfOptions = readonly (readonly EbnfItem[])[];
export type EbnfRules = ReadonlyMap<string, EbnfOptions>;

const DEPTH_MAX = 24;
const REPEAT_MAX = 1000;
const BYTES_MAX = 256 * 1024;

interface Token {
  readonly kind: "name" | "string" | "class" | "mark" | "repeat";
  readonly text: string;
}

const TOKEN =
  /\s+|#[^\n]*|(?<name>[A-Za-z_][\w.-]*)|(?<string>"(?:[^"\\\n]|\\[^\n])*")|(?<class>\[(?:[^\]\\\n]|\\[^\n])*\])|(?<repeat>\{\d{1,6}(?:,\d{0,6})?\})|(?<mark>::=|\(=|[()|?*+])/y;

/** @throws GrammarError saying what cannot be read, and in which rule */
export function readEbnf(source: string): EbnfRules {
  if (Buffer.byteLength(source) > BYTES_MAX)
    throw new GrammarError(null, `the grammar is larger than ${BYTES_MAX} bytes`);
  return new Reader(tokensOf(source)).rules();
}

function tokensOf(source: string): Token[] {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < source.length) {
    const at = TOKEN.lastIndex;
    const groups = TOKEN.exec(source)?.groups;
    if (groups === undefined) {
      throw new GrammarError(null, `the grammar cannot be read at ${JSON.stringify(source.slice(at, at + 20))}`);
    }
    for (const kind of ["name", "string", "class", "mark", "repeat"] as const) {
      const text = groups[kind];
      if (text !== undefined) tokens.push({ kind, text });
    }
  }
  return tokens;
}

class Reader {
  private at = 0;
  private depth = 0;
  private rule = "";

  constructor(private readonly tokens: readonly Token[]) {}

  rules(): EbnfRules {
    const rules = new Map<string, EbnfOptions>();
    while (this.at < this.tokens.length) {
      const name = this.next();
      if (name.kind !== "name" || this.next().text !== "::=")
        throw this.broken(`expected 'name ::=' at '${name.text}'`);
      this.rule = name.text;
      if (rules.has(name.text)) throw this.broken("it is defined twice");
      rules.set(name.text, this.options());
    }
    return rules;
  }

  private options(): EbnfOptions {
    const options = [this.sequence()];
    while (this.take("|")) options.push(this.sequence());
    return options;
  }

  private sequence(): readonly EbnfItem[] {
    const items: EbnfItem[] = [];
    for (let token = this.peek(); token !== undefined; token = this.peek()) {
      if (token.text === "|" || token.text === ")") break;
      if (token.kind === "name" && this.tokens[this.at + 1]?.text === "::=") break;
      const item = this.item();
      if (item !== null) items.push(this.repeated(item));
    }
    return items;
  }

  /** Null: a hint that is passed over. */
  private item(): EbnfItem | null {
    const token = this.next();
    switch (token.kind) {
      case "name":
        return { kind: "rule", name: token.text };
      case "string":
        return { kind: "text", text: this.characters(token.text.slice(1, -1)).join("") };
      case "class":
        return this.class(token.text);
      default:
        return this.group(token.text);
    }
  }

  private group(opening: string): EbnfItem | null {
    if (opening !== "(" && opening !== "(=") throw this.broken(`'${opening}' is not expected`);
    this.depth++;
    if (this.depth > DEPTH_MAX) throw this.broken(`parentheses are nested deeper than ${DEPTH_MAX}`);
    const options = this.options();
    if (!this.take(")")) throw this.broken("'(' without ')'");
    this.depth--;
    return opening === "(=" ? null : { kind: "group", options };
  }

  private repeated(of: EbnfItem): EbnfItem {
    const token = this.peek();
    if (token?.text === "?" || token?.text === "*" || token?.text === "+") {
      this.at++;
      return { kind: "repeat", of, min: token.text === "+" ? 1 : 0, max: token.text === "?" ? 1 : null };
    }
    if (token?.kind !== "repeat") return of;
    this.at++;
    const [least = "", most = least] = token.text.slice(1, -1).split(",");
    const [min, max] = [Number(least), most === "" ? null : Number(most)];
    if (Math.max(min, max ?? 0) > REPEAT_MAX) {
      throw this.broken(`a repetition of more than ${REPEAT_MAX} is not supported`);
    }
    if (max !== null && max < min) throw this.broken(`the limits ${token.text} are out of order`);
    return { kind: "repeat", of, min, max };
  }

  private class(text: string): EbnfItem {
    const negated = text.startsWith("[^");
    const parts = this.pieces(text.slice(negated ? 2 : 1, -1));
    const ranges: Range[] = [];
    for (let i = 0; i < parts.length; i++) {
      const from = this.code(parts[i] ?? "");
      const isRange = parts[i + 1] === "-" && i + 2 < parts.length;
      const to = isRange ? this.code(parts[i + 2] ?? "") : from;
      if (from > to) throw this.broken(`a range in ${text} has no order`);
      ranges.push([from, to]);
      if (isRange) i += 2;
    }
    return { kind: "class", set: charSet(ranges), negated };
  }

  private characters(text: string): readonly string[] {
    return this.pieces(text).map((piece) => String.fromCodePoint(this.code(piece)));
  }

  /** Characters as they are written, escapes whole. */
  private pieces(text: string): readonly string[] {
    return text.match(/\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|[^\\]/gu) ?? [];
  }

  private code(piece: string): number {
    if (!piece.startsWith("\\")) return piece.codePointAt(0) ?? 0;
    if (/^\\[xuU]./.test(piece)) {
      const code = Number.parseInt(piece.slice(2), 16);
      if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw this.broken(`${piece} is no character`);
      return code;
    }
    const letter = piece.slice(1);
    const control: Readonly<Record<string, string>> = {
      n: "\n",
      r: "\r",
      t: "\t",
      f: "\f",
      v: "\v",
      b: "\b",
      "0": "\0",
    };
    if (/[A-Za-z0-9]/.test(letter) && control[letter] === undefined) throw this.broken(`unknown escape ${piece}`);
    return (control[letter] ?? letter).codePointAt(0) ?? 0;
  }

  private peek(): Token | undefined {
    return this.tokens[this.at];
  }

  private next(): Token {
    const token = this.tokens[this.at];
    if (token === undefined) throw this.broken("it ends too early");
    this.at++;
    return token;
  }

  private take(text: string): boolean {
    if (this.peek()?.text !== text) return false;
    this.at++;
    return true;
  }

  private broken(why: string): GrammarError {
    return new GrammarError(
      null,
      this.rule === "" ? `the grammar cannot be read: ${why}` : `rule '${this.rule}': ${why}`,
    );
  }
}
