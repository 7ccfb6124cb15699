/**
 * Reads regular expressions as JavaScript writes them with the `u` flag (what JSON Schema's `pattern` means), as far as they
 * are regular: what looks around, counts matches or names Unicode properties is refused by name.
 */
import { ANYTHING, type CharSet, charSet, charsOf, complement, type Range, union } from "./charset.ts";
import { RegexError, type RegexTree } from "./regex-tree.ts";

/** Nesting of groups; deeper ones spoil the engine (structured-output.md §3). */
const DEPTH_MAX = 24;
const REPEAT_MAX = 1000;

const DIGITS = charSet([[0x30, 0x39]]);
const WORD = union(
  charsOf("_"),
  charSet([
    [0x30, 0x39],
    [0x41, 0x5a],
    [0x61, 0x7a],
  ]),
);
/** ECMAScript's WhiteSpace and LineTerminator. */
const SPACE = union(
  charsOf("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"),
  charSet([[0x2000, 0x200a]]),
);
/**
 * What `.` is: U+2028 and U+2029 are no line ends here, since a grammar cannot tell them from other letters.
 */
const DOT = complement(charsOf("\n\r"));

const CLASSES: Readonly<Record<string, CharSet>> = {
  d: DIGITS,
  D: complement(DIGITS),
  w: WORD,
  W: complement(WORD),
  s: SPACE,
  S: complement(SPACE),
};
const CONTROLS: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", f: "\f", v: "\v", "0": "\0" };

/** @throws RegexError saying what is not supported, or where the expression is broken */
export function parseRegex(source: string): RegexTree {
  return new Reader(source).whole();
}

class Reader {
  private readonly characters: readonly string[];
  private at = 0;
  private depth = 0;

  constructor(source: string) {
    this.characters = Array.from(source);
  }

  whole(): RegexTree {
    const tree = this.choice();
    if (this.at < this.characters.length) throw this.broken(`')' without '('`);
    return tree;
  }

  private choice(): RegexTree {
    const options = [this.sequence()];
    while (this.take("|")) options.push(this.sequence());
    const [only] = options;
    return options.length === 1 && only !== undefined ? only : { kind: "choice", options };
  }

  private sequence(): RegexTree {
    const parts: RegexTree[] = [];
    for (let next = this.peek(); next !== undefined && next !== "|" && next !== ")"; next = this.peek()) {
      parts.push(this.quantified(this.atom()));
    }
    return { kind: "sequence", parts };
  }

  private atom(): RegexTree {
    const character = this.next();
    switch (character) {
      case "^":
        return { kind: "start" };
      case "$":
        return { kind: "end" };
      case ".":
        return { kind: "set", set: DOT };
      case "[":
        return { kind: "set", set: this.bracket() };
      case "(":
        return this.group();
      case "\\":
        return { kind: "set", set: this.escape(false) };
      case "*":
      case "+":
      case "?":
        throw this.broken(`nothing to repeat before '${character}'`);
      default:
        return { kind: "set", set: charsOf(character) };
    }
  }

  private group(): RegexTree {
    if (this.take("?")) {
      if (this.take("<") && this.peek() !== "=" && this.peek() !== "!") {
        while (this.next() !== ">");
      } else if (!this.take(":")) throw new RegexError("lookaround is not supported");
    }
    this.depth++;
    if (this.depth > DEPTH_MAX) throw new RegexError(`groups are nested deeper than ${DEPTH_MAX}`);
    const tree = this.choice();
    if (!this.take(")")) throw this.broken("'(' without ')'");
    this.depth--;
    return tree;
  }

  private quantified(of: RegexTree): RegexTree {
    const [min, max] = this.quantifier() ?? [1, 1];
    if (min === 1 && max === 1) return of;
    if (of.kind === "start" || of.kind === "end") throw this.broken("an anchor is repeated");
    // How greedy it is makes no difference to what matches.
    this.take("?");
    return { kind: "repeat", of, min, max };
  }

  private quantifier(): readonly [number, number | null] | null {
    if (this.take("*")) return [0, null];
    if (this.take("+")) return [1, null];
    if (this.take("?")) return [0, 1];
    if (this.peek() !== "{") return null;
    const match = /^\{(\d{1,6})(,(\d{1,6})?)?\}/.exec(this.characters.slice(this.at, this.at + 16).join(""));
    if (match === null) throw this.broken("'{' without a count");
    this.at += match[0].length;
    const min = Number(match[1]);
    const max = match[2] === undefined ? min : match[3] === undefined ? null : Number(match[3]);
    if (Math.max(min, max ?? 0) > REPEAT_MAX)
      throw new RegexError(`a repetition of more than ${REPEAT_MAX} is not supported`);
    if (max !== null && max < min) throw this.broken("a repetition's limits are out of order");
    return [min, max];
  }

  private bracket(): CharSet {
    const negated = this.take("^");
    let set: CharSet = [];
    while (!this.take("]")) {
      const from = this.classAtom();
      if (this.peek() !== "-" || this.characters[this.at + 1] === "]") {
        set = union(set, from);
        continue;
      }
      this.next();
      const to = this.classAtom();
      const [low, high] = [single(from), single(to)];
      if (low === null || high === null || low > high) throw this.broken("a range in '[…]' has no order");
      set = union(set, charSet([[low, high]]));
    }
    return negated ? complement(set) : set;
  }

  private classAtom(): CharSet {
    const character = this.next();
    return character === "\\" ? this.escape(true) : charsOf(character);
  }

  private escape(inClass: boolean): CharSet {
    const character = this.next();
    const known = CLASSES[character];
    if (known !== undefined) return known;
    if (inClass && character === "b") return charsOf("\b");
    if (character === "b" || character === "B") throw new RegexError(`'\\${character}' is not supported`);
    if (character === "p" || character === "P") throw new RegexError(`'\\${character}{…}' is not supported`);
    if (character === "k" || /[1-9]/.test(character)) throw new RegexError("backreferences are not supported");
    const control = CONTROLS[character];
    if (control !== undefined) return charsOf(control);
    switch (character) {
      case "x":
        return this.codePoint(this.hex(2));
      case "u":
        return this.unicode();
      case "c":
        return this.codePoint((this.next().codePointAt(0) ?? 0) % 32);
      default:
        if (/[A-Za-z0-9]/.test(character)) throw this.broken(`unknown escape '\\${character}'`);
        return charsOf(character);
    }
  }

  private unicode(): CharSet {
    if (this.take("{")) {
      let digits = "";
      for (let next = this.next(); next !== "}"; next = this.next()) digits += next;
      if (!/^[0-9a-fA-F]{1,6}$/.test(digits)) throw this.broken("bad '\\u{…}'");
      return this.codePoint(Number.parseInt(digits, 16));
    }
    const first = this.hex(4);
    const isPair = (first & 0xfc00) === 0xd800 && this.peek() === "\\" && this.characters[this.at + 1] === "u";
    if (!isPair) return this.codePoint(first);
    this.at += 2;
    return this.codePoint(0x10000 + ((first & 0x3ff) << 10) + (this.hex(4) & 0x3ff));
  }

  private hex(digits: number): number {
    const text = this.characters.slice(this.at, this.at + digits).join("");
    if (!/^[0-9a-fA-F]+$/.test(text) || text.length !== digits) throw this.broken("bad hexadecimal escape");
    this.at += digits;
    return Number.parseInt(text, 16);
  }

  private codePoint(code: number): CharSet {
    const range: Range = [code, code];
    const set = charSet([range]);
    if (set.length === 0) throw new RegexError("a lone surrogate is not supported");
    return set;
  }

  private peek(): string | undefined {
    return this.characters[this.at];
  }

  private next(): string {
    const character = this.characters[this.at];
    if (character === undefined) throw this.broken("it ends too early");
    this.at++;
    return character;
  }

  private take(character: string): boolean {
    if (this.peek() !== character) return false;
    this.at++;
    return true;
  }

  private broken(why: string): RegexError {
    return new RegexError(`not a regular expression: ${why} (at ${this.at})`);
  }
}

function single(set: CharSet): number | null {
  const [range, more] = set;
  return range !== undefined && more === undefined && range[0] === range[1] ? range[0] : null;
}

/** Every character. */
export const ANY_TEXT: RegexTree = { kind: "repeat", of: { kind: "set", set: ANYTHING }, min: 0, max: null };
