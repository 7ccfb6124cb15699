/**
 * The text of a grammar, written so that XGrammar 0.1.27 reads it rightly. It merges states of one rule that it must not
 * merge: of `"abab" | "abb" | "babb"` it takes `bab`, too. That happens where alternatives of one rule share their first
 * byte and go on for more than a character; rules that hold a reference are never put into another one, so such
 * alternatives become rules of their own, each with a reference in it. (Found by comparing masks with brute force.)
 */

export interface RuleText {
  readonly name: string;
  readonly alternatives: readonly string[];
  /** A class of the characters behind the rule, "" if none is named. */
  readonly follow: string;
}

type Item = { readonly kind: "literal" | "class" | "reference"; readonly text: string };

const ITEM =
  /\s+|(?<literal>"(?:[^"\\]|\\.)*")|(?<class>\[(?:[^\]\\]|\\.)*\](?:[?*+]|\{[\d,]+\})?)|(?<reference>[A-Za-z_][\w.-]*)/y;

export function grammarText(rules: readonly RuleText[]): string {
  return new Writer(rules).text();
}

/** How an alternative begins: its first bytes, and whether more than one byte is read before a reference. */
interface Beginning {
  readonly bytes: ReadonlySet<number> | "any";
  readonly isLong: boolean;
}

class Writer {
  private readonly rules: Map<string, readonly (readonly Item[])[]>;
  private readonly lines: string[] = [];
  /** Rules that are put into others unless they are given a reference. */
  private readonly shielded = new Set<string>();
  private readonly names: Set<string>;

  constructor(private readonly given: readonly RuleText[]) {
    this.rules = new Map(given.map(({ name, alternatives }) => [name, alternatives.map(itemsOf)]));
    this.names = new Set(this.rules.keys());
  }

  text(): string {
    for (const { name } of this.given) this.shieldLeaves(name);
    for (const rule of this.given) this.write(rule);
    return `${this.lines.join("\n")}\n`;
  }

  private isLeaf(name: string): boolean {
    return this.rules.get(name)?.every((items) => items.every(({ kind }) => kind !== "reference")) ?? false;
  }

  /** Leaves that alternatives at risk begin with. */
  private shieldLeaves(name: string): void {
    const alternatives = this.rules.get(name) ?? [];
    const risky = this.risky(alternatives);
    for (const [i, items] of alternatives.entries()) {
      const [first] = items;
      if (risky[i] === true && first?.kind === "reference" && this.isLeaf(first.text)) this.shielded.add(first.text);
    }
  }

  private write({ name, alternatives, follow }: RuleText): void {
    const items = this.rules.get(name) ?? [];
    const risky = this.risky(items);
    const isShielded = this.shielded.has(name);
    const written = alternatives.map((alternative, i) => {
      const own = items[i] ?? [];
      const isOwnRule = risky[i] === true && own[0]?.kind !== "reference";
      if (!isOwnRule && !isShielded) return alternative;
      const shielded = own.some(({ kind }) => kind === "reference") ? alternative : this.withReference(own);
      if (!isOwnRule) return shielded;
      const rule = this.freshName(`${name}_or`);
      this.lines.push(`${rule} ::= ${shielded}`);
      return rule;
    });
    const body = written.join(" | ");
    this.lines.push(`${name} ::= ${follow === "" ? body : `(${body}) (=${follow})`}`);
  }

  /** The last character as a rule of its own. */
  private withReference(items: readonly Item[]): string {
    const last = items.at(-1);
    const before = items.slice(0, -1).map(({ text }) => text);
    if (last === undefined || last.text === '""') return '""';
    const characters = last.kind === "literal" ? literalCharacters(last.text) : [];
    const end = characters.at(-1);
    const start = characters.slice(0, -1).join("");
    const rule = this.freshName("end");
    this.lines.push(`${rule} ::= ${end === undefined ? last.text : `"${end}"`}`);
    return [...before, ...(start === "" ? [] : [`"${start}"`]), rule].join(" ");
  }

  private freshName(hint: string): string {
    let name = hint;
    for (let i = 2; this.names.has(name); i++) name = `${hint}_${i}`;
    this.names.add(name);
    return name;
  }

  /** Which alternatives share a first byte with another, where either of the two is long. */
  private risky(alternatives: readonly (readonly Item[])[]): readonly boolean[] {
    const beginnings = alternatives.map((items) => this.beginnings(items));
    return beginnings.map((own, i) =>
      beginnings.some(
        (others, j) => i !== j && own.some((a) => others.some((b) => (a.isLong || b.isLong) && overlap(a, b))),
      ),
    );
  }

  /** Of an alternative that begins with a leaf: those of the leaf. References to other rules read nothing by themselves. */
  private beginnings(items: readonly Item[]): readonly Beginning[] {
    const [first, ...rest] = items;
    if (first === undefined) return [];
    if (first.kind !== "reference") return [beginning(items)];
    if (!this.isLeaf(first.text)) return [];
    return (this.rules.get(first.text) ?? []).map((leaf) => beginning([...leaf, ...rest]));
  }
}

function beginning(items: readonly Item[]): Beginning {
  const run = items.slice(0, items.findIndex(({ kind }) => kind === "reference") + 1 || items.length);
  const read = run.filter(({ kind, text }) => kind !== "reference" && text !== '""');
  const [first] = read;
  if (first === undefined) return { bytes: new Set(), isLong: false };
  if (first.kind === "class") {
    const isRepeated = !first.text.endsWith("]");
    return { bytes: isRepeated ? "any" : classBytes(first.text), isLong: isRepeated || read.length > 1 };
  }
  const [character = ""] = literalCharacters(first.text);
  const lead = new TextEncoder().encode(unescaped(character))[0] ?? 0;
  const length = literalCharacters(first.text).length;
  return { bytes: new Set([lead]), isLong: read.length > 1 || length > 1 || lead >= 0x80 };
}

function overlap(a: Beginning, b: Beginning): boolean {
  if (a.bytes === "any" || b.bytes === "any") return true;
  for (const byte of a.bytes) if (b.bytes.has(byte)) return true;
  return false;
}

/** First bytes of the characters of a class. */
function classBytes(text: string): ReadonlySet<number> {
  const isNegated = text.startsWith("[^");
  const characters = text.slice(isNegated ? 2 : 1, -1).match(/\\u[0-9a-f]{4}|\\.|[^\\]/g) ?? [];
  const named = new Set<number>();
  for (let i = 0; i < characters.length; i++) {
    const from = unescaped(characters[i] ?? "").charCodeAt(0);
    const isRange = characters[i + 1] === "-" && i + 2 < characters.length;
    const to = isRange ? unescaped(characters[i + 2] ?? "").charCodeAt(0) : from;
    for (let code = from; code <= to; code++) named.add(code);
    if (isRange) i += 2;
  }
  if (!isNegated) return named;
  return new Set(Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => byte >= 0x80 || !named.has(byte)));
}

/** The text of a fragment of literals; null: it holds something else. */
export function textOf(fragment: string): string | null {
  const items = itemsOf(fragment);
  if (items.some(({ kind }) => kind !== "literal")) return null;
  return items.flatMap(({ text }) => literalCharacters(text).map(unescaped)).join("");
}

function itemsOf(alternative: string): readonly Item[] {
  const items: Item[] = [];
  ITEM.lastIndex = 0;
  while (ITEM.lastIndex < alternative.length) {
    const at = ITEM.lastIndex;
    const groups = ITEM.exec(alternative)?.groups;
    if (groups === undefined) throw new RangeError(`cannot read the rule ${alternative} at ${at}`);
    for (const kind of ["literal", "class", "reference"] as const) {
      const text = groups[kind];
      if (text !== undefined) items.push({ kind, text });
    }
  }
  return items;
}

/** Characters of a literal, escaped as they stand there. */
function literalCharacters(literal: string): readonly string[] {
  return literal.slice(1, -1).match(/\\u[0-9a-f]{4}|\\.|[^\\]/gu) ?? [];
}

function unescaped(character: string): string {
  if (character.startsWith("\\u")) return String.fromCharCode(Number.parseInt(character.slice(2), 16));
  if (character === "\\n") return "\n";
  return character.startsWith("\\") ? character.slice(1) : character;
}
