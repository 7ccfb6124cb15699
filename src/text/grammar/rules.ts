/**
 * The text of a grammar as XGrammar reads it, rule by rule. Rules refer to each other by name and hold no parentheses but
 * one around their alternatives, since nesting spoils the engine; classes are ASCII only, since others are read wrongly
 * (structured-output.md §2).
 */
import { ASCII, type CharSet, codePoints, difference, intersection, isSubset, NON_ASCII, size } from "./charset.ts";

export class Rules {
  private readonly lines: string[] = [];
  private readonly names = new Set<string>();
  private readonly shared = new Map<string, string>();

  /** A name that is not taken, beginning with `hint`. */
  name(hint: string): string {
    const clean = hint.replace(/[^A-Za-z0-9_]/g, "_");
    let name = clean;
    for (let i = 2; this.names.has(name); i++) name = `${clean}_${i}`;
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
    const body = alternatives.join(" | ");
    const look = follow === "" ? "" : ` (=${charClass(asciiSet(follow))})`;
    this.lines.push(`${name} ::= ${look === "" ? body : `(${body})${look}`}`);
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
    return this.lines.length;
  }

  get text(): string {
    return `${this.lines.join("\n")}\n`;
  }
}

/** A literal. */
export function literal(text: string): string {
  return `"${Array.from(text, escaped).join("")}"`;
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (character === '"' || character === "\\") return `\\${character}`;
  if (character === "\n") return "\\n";
  if (code < 0x20 || code === 0x7f) return `\\x${code.toString(16).padStart(2, "0")}`;
  return character;
}

/** A class of ASCII characters, or of all but some. */
export function charClass(set: CharSet, negated = false): string {
  const body = set.map(([from, to]) => (from === to ? classed(from) : `${classed(from)}-${classed(to)}`)).join("");
  return `[${negated ? "^" : ""}${body}]`;
}

function classed(code: number): string {
  const character = String.fromCharCode(code);
  if (/[\\\][^-]/.test(character)) return `\\${character}`;
  return code < 0x20 || code === 0x7f ? `\\x${code.toString(16).padStart(2, "0")}` : character;
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
