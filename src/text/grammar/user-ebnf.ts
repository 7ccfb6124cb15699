/**
 * Grammars that requests bring: read before the engine sees them, since whatever it refuses spoils its instance
 * (structured-output.md §3). Notation as XGrammar's: `name ::= …` with "literals", [classes], ( ) | ? * + {m,n} and # notes.
 */
import { GrammarError } from "./errors.ts";

/** Nesting of parentheses; 200 destroy the engine at once. */
const DEPTH_MAX = 24;
const REPEAT_MAX = 1000;
const BYTES_MAX = 256 * 1024;

type Item =
  | { readonly kind: "text"; readonly isEmpty: boolean }
  | { readonly kind: "rule"; readonly name: string }
  | { readonly kind: "group"; readonly options: readonly (readonly Item[])[]; readonly mayBeEmpty: boolean };

interface Token {
  readonly kind: "name" | "string" | "class" | "mark" | "repeat";
  readonly text: string;
}

const TOKEN =
  /\s+|#[^\n]*|(?<name>[A-Za-z_][\w.-]*)|(?<string>"(?:[^"\\\n]|\\[^\n])*")|(?<class>\[(?:[^\]\\\n]|\\[^\n])*\])|(?<repeat>\{\d{1,6}(?:,\d{0,6})?\})|(?<mark>::=|\(=|[()|?*+])/y;

export interface UserGrammar {
  /** The rules, each name with a prefix of ours. */
  readonly text: string;
  readonly start: string;
}

const PREFIX = "user_";

/** @throws GrammarError saying what is wrong, and in which rule */
export function userGrammar(source: string): UserGrammar {
  if (Buffer.byteLength(source) > BYTES_MAX)
    throw new GrammarError(null, `the grammar is larger than ${BYTES_MAX} bytes`);
  const tokens = tokensOf(source);
  const rules = new Reader(tokens).rules();
  if (!rules.has("root")) throw new GrammarError(null, "the grammar has no rule 'root'");
  for (const [name, options] of rules) {
    for (const used of namesIn(options)) {
      if (!rules.has(used)) throw new GrammarError(null, `rule '${name}': rule '${used}' is not defined`);
    }
  }
  refuseLeftRecursion(rules);
  let text = "";
  for (const [i, { kind, text: own }] of tokens.entries()) {
    const begins = kind === "name" && tokens[i + 1]?.text === "::=";
    text += `${begins && i > 0 ? "\n" : " "}${kind === "name" ? PREFIX : ""}${own}`;
  }
  return { text: `${text.trim()}\n`, start: `${PREFIX}root` };
}

function tokensOf(source: string): Token[] {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < source.length) {
    const at = TOKEN.lastIndex;
    const groups = TOKEN.exec(source)?.groups;
    if (groups === undefined)
      throw new GrammarError(null, `the grammar cannot be read at ${JSON.stringify(source.slice(at, at + 20))}`);
    for (const kind of ["name", "string", "class", "mark", "repeat"] as const) {
      const text = groups[kind];
      if (text !== undefined) tokens.push({ kind, text });
    }
  }
  return tokens;
}

type RuleTable = ReadonlyMap<string, readonly (readonly Item[])[]>;

class Reader {
  private at = 0;
  private depth = 0;
  private rule = "";

  constructor(private readonly tokens: readonly Token[]) {}

  rules(): RuleTable {
    const rules = new Map<string, readonly (readonly Item[])[]>();
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

  private options(): readonly (readonly Item[])[] {
    const options = [this.sequence()];
    while (this.take("|")) options.push(this.sequence());
    return options;
  }

  private sequence(): readonly Item[] {
    const items: Item[] = [];
    for (let token = this.peek(); token !== undefined; token = this.peek()) {
      if (token.text === "|" || token.text === ")") break;
      if (token.kind === "name" && this.tokens[this.at + 1]?.text === "::=") break;
      items.push(this.repeated(this.item()));
    }
    return items;
  }

  private item(): Item {
    const token = this.next();
    switch (token.kind) {
      case "name":
        return { kind: "rule", name: token.text };
      case "string":
        return { kind: "text", isEmpty: token.text === '""' };
      case "class":
        this.checkClass(token.text);
        return { kind: "text", isEmpty: false };
      default: {
        if (token.text !== "(" && token.text !== "(=") throw this.broken(`'${token.text}' is not expected`);
        this.depth++;
        if (this.depth > DEPTH_MAX) throw this.broken(`parentheses are nested deeper than ${DEPTH_MAX}`);
        const options = this.options();
        if (!this.take(")")) throw this.broken("'(' without ')'");
        this.depth--;
        // What is only looked at is no part of the text.
        return token.text === "(=" ? { kind: "text", isEmpty: true } : { kind: "group", options, mayBeEmpty: false };
      }
    }
  }

  private repeated(item: Item): Item {
    const token = this.peek();
    if (token === undefined || (token.kind !== "repeat" && !["?", "*", "+"].includes(token.text))) return item;
    this.at++;
    const counts = token.kind === "repeat" ? token.text.slice(1, -1).split(",") : [];
    if (counts.some((count) => Number(count) > REPEAT_MAX)) {
      throw this.broken(`a repetition of more than ${REPEAT_MAX} is not supported`);
    }
    const [min, max = min] = counts;
    if (max !== "" && Number(max) < Number(min)) throw this.broken(`the limits ${token.text} are out of order`);
    const mayBeEmpty = token.text === "?" || token.text === "*" || Number(min) === 0;
    return { kind: "group", options: [[item]], mayBeEmpty };
  }

  /** The engine reads characters beyond ASCII in a class wrongly. */
  private checkClass(text: string): void {
    if (text === "[]" || text === "[^]") throw this.broken("a class is empty");
    const beyond = Array.from(text).some((character) => (character.codePointAt(0) ?? 0) > 0x7f);
    if (beyond || /\\u(?!00[0-7])|\\U|\\x[89a-fA-F]/.test(text)) {
      throw this.broken(`characters beyond ASCII are not supported in a class: ${text.slice(0, 40)}`);
    }
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

function namesIn(options: readonly (readonly Item[])[]): readonly string[] {
  return options.flat().flatMap((item) => {
    if (item.kind === "rule") return [item.name];
    return item.kind === "group" ? namesIn(item.options) : [];
  });
}

/** A rule that begins with itself would be opened without end. */
function refuseLeftRecursion(rules: RuleTable): void {
  const nullable = new Set<string>();
  const isEmpty = (item: Item): boolean => {
    if (item.kind === "text") return item.isEmpty;
    if (item.kind === "rule") return nullable.has(item.name);
    return item.mayBeEmpty || item.options.some((option) => option.every(isEmpty));
  };
  for (let before = -1; before !== nullable.size; ) {
    before = nullable.size;
    for (const [name, options] of rules) if (options.some((option) => option.every(isEmpty))) nullable.add(name);
  }
  const firsts = (options: readonly (readonly Item[])[]): readonly string[] =>
    options.flatMap((option) => {
      const end = option.findIndex((item) => !isEmpty(item));
      return option.slice(0, end < 0 ? option.length : end + 1).flatMap((item) => {
        if (item.kind === "rule") return [item.name];
        return item.kind === "group" ? firsts(item.options) : [];
      });
    });
  const edges = new Map(Array.from(rules, ([name, options]) => [name, firsts(options)]));
  for (const start of rules.keys()) {
    const seen = new Set<string>();
    const pending = [...(edges.get(start) ?? [])];
    for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
      if (name === start) throw new GrammarError(null, `rule '${start}' begins with itself`);
      if (seen.has(name)) continue;
      seen.add(name);
      pending.push(...(edges.get(name) ?? []));
    }
  }
}
