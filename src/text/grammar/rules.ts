/**
 * The text of a grammar as XGrammar reads it, rule by rule. Rules refer to each other by name and hold no parentheses but
 * one around their alternatives, since nesting spoils the engine; classes are ASCII only, since others are read wrongly
 * (structured-output.md §2).
 */
import { ASCII, type CharSet, codePoints, difference, intersection, isSubset, NON_ASCII, size } from "./charset.ts";
import { grammarText, type RuleText } from "./grammar-text.ts";

export class Rules {
  private readonly defined: RuleText[] = [];
  private readonly names = new Set<string>();
  /** Of each hint, the number that is tried next. */
  private readonly numbers = new Map<string, number>();
  private readonly shared = new Map<string, string>();

  /** A name that is not taken, beginning with `hint`. */
  name(hint: string): string {
    const clean = hint.replace(/[^A-Za-z0-9_]/g, "_");
    let name = clean;
    let number = this.numbers.get(clean) ?? 2;
    for (; this.names.has(name); number++) name = `${clean}_${number}`;
    this.numbers.set(clean, number);
    this.names.add(name);
    return name;
  }

  /**
   * Defines `name` as one of `alternatives`.
   * @param follow characters of which one comes behind the rule wherever it is used: lets the engine decide tokens that
   * reach beyond it beforehand. A token that goes on with another character is denied.
   */
  define(name: string, alternatives: readonly string[], follow = ""): string {
    if (alternatives.length === 0) throw new RangeError(`rule ${name} has no alternative`);
    this.defined.push({ name, alternatives, follow: follow === "" ? "" : charClass(asciiSet(follow)) });
    return name;
  }

  /** A rule that is the same wherever it is used. */
  once(name: string, define: (name: string) => void): string {
    const known = this.shared.get(name);
    if (known !== undefined) return known;
    const own = this.name(name);
    this.shared.set(name, own);
    define(own);
    return own;
  }

  get count(): number {
    return this.defined.length;
  }

  get text(): string {
    return grammarText(this.defined);
  }
}

/**
 * The rule of several literals, each with what follows it: shared beginnings are read once. A text that is there twice
 * keeps both continuations.
 */
export function literalsRule(rules: Rules, hint: string, entries: readonly LiteralEntry[]): string {
  const [only, more] = entries;
  const name = rules.name(hint);
  if (only !== undefined && more === undefined) return rules.define(name, [joined(only.text, only.rest)]);
  const branches = Map.groupBy(
    entries.map(({ text, rest }) => ({ characters: Array.from(text), rest })),
    ({ characters }) => characters[0] ?? "",
  );
  const alternatives = Array.from(branches).flatMap(([first, group]) => {
    if (first === "") return group.map(({ rest }) => rest || '""');
    const shared = sharedLength(group.map(({ characters }) => characters));
    const start = group[0]?.characters.slice(0, shared).join("") ?? "";
    const tails = group.map(({ characters, rest }) => ({ text: characters.slice(shared).join(""), rest }));
    const [tail, another] = tails;
    if (tail !== undefined && another === undefined) return [joined(start, tail.rest)];
    return [`${literal(start)} ${literalsRule(rules, hint, tails)}`];
  });
  return rules.define(name, [...new Set(alternatives)]);
}

export interface LiteralEntry {
  readonly text: string;
  /** Fragment behind it; "" for nothing. */
  readonly rest: string;
}

function joined(text: string, rest: string): string {
  return [text === "" ? "" : literal(text), rest].filter((part) => part !== "").join(" ") || '""';
}

function sharedLength(texts: readonly (readonly string[])[]): number {
  const [first = []] = texts;
  const at = first.findIndex((character, i) => texts.some((text) => text[i] !== character));
  return at < 0 ? first.length : at;
}

/** A literal. */
export function literal(text: string): string {
  return `"${Array.from(text, escaped).join("")}"`;
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (character === '"' || character === "\\") return `\\${character}`;
  if (character === "\n") return "\\n";
  if (code < 0x20 || code === 0x7f) return hexEscape(code);
  return character;
}

/** Of four digits: `\x` takes all hexadecimal digits that follow. */
function hexEscape(code: number): string {
  return `\\u${code.toString(16).padStart(4, "0")}`;
}

/** A class of ASCII characters, or of all but some. */
export function charClass(set: CharSet, negated = false): string {
  const body = set.map(([from, to]) => (from === to ? classed(from) : `${classed(from)}-${classed(to)}`)).join("");
  return `[${negated ? "^" : ""}${body}]`;
}

function classed(code: number): string {
  const character = String.fromCharCode(code);
  if (/[\\\][^-]/.test(character)) return `\\${character}`;
  return code < 0x20 || code === 0x7f ? hexEscape(code) : character;
}

const NOT_ASCII = charClass(ASCII, true);

/** At most that many characters beyond ASCII are written one by one. */
const LETTERS_MAX = 256;

/** Ways to write one character of `set`. `exact` false: beyond ASCII more than `set` is allowed. */
export function oneOf(set: CharSet): { readonly alternatives: readonly string[]; readonly exact: boolean } {
  const ascii = intersection(set, ASCII);
  const beyond = intersection(set, NON_ASCII);
  if (isSubset(NON_ASCII, beyond)) {
    const denied = difference(ASCII, ascii);
    return { alternatives: denied.length > 0 ? [charClass(denied, true)] : [charClass(ASCII), NOT_ASCII], exact: true };
  }
  const alternatives = ascii.length > 0 ? [charClass(ascii)] : [];
  if (size(beyond) <= LETTERS_MAX) {
    for (const code of codePoints(beyond)) alternatives.push(literal(String.fromCodePoint(code)));
    return { alternatives, exact: true };
  }
  return { alternatives: [...alternatives, NOT_ASCII], exact: false };
}

function asciiSet(text: string): CharSet {
  return [...new Set(text)].sort().map((character) => {
    const code = character.charCodeAt(0);
    return [code, code] as const;
  });
}
