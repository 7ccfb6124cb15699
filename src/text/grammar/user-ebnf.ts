/**
 * Grammars that requests bring, read and written anew as rules of ours: whatever the engine refuses spoils its instance,
 * and it reads some forms wrongly (structured-output.md §3, `grammar-text.ts`). Notation as XGrammar's: `name ::= …` with
 * "literals", [classes], ( ) | ? * + {m,n} and # notes; `(= …)`, a hint of what follows, is passed over.
 */
import { ANYTHING, type CharSet, charSet, complement, difference } from "./charset.ts";
import { bareText, RESERVED } from "./dialect.ts";
import { type EbnfItem, type EbnfOptions, type EbnfRules, readEbnf } from "./ebnf-reader.ts";
import { GrammarError } from "./errors.ts";
import { regularGrammar } from "./regular-ebnf.ts";
import { literal, oneOf, Rules } from "./rules.ts";
import { writeText } from "./text-form.ts";

const TEXT = bareText("", difference(ANYTHING, RESERVED));
/** Characters, repetitions and rules that one grammar may unroll to. */
const ITEMS_MAX = 20_000;

/** The rule of the grammar's `root`. @throws GrammarError saying what is wrong, and in which rule */
export function userGrammar(rules: Rules, source: string): string {
  const given = readEbnf(source);
  if (!given.has("root")) throw new GrammarError(null, "the grammar has no rule 'root'");
  refuseUndefined(given);
  const nullable = nullableRules(given);
  refuseLeftRecursion(given, nullable);
  refuseEndless(given);
  return regularRule(rules, given) ?? new Writer(rules, given, nullable).root();
}

/** The rule of a grammar without recursion; null: it has some, or cannot be written so. */
function regularRule(rules: Rules, given: EbnfRules): string | null {
  const automaton = regularGrammar(given, TEXT.alphabet);
  if (automaton === null) return null;
  let isExact = true;
  const trial = writeText(new Rules(), "user", automaton, TEXT, "more", () => {
    isExact = false;
  });
  return trial === null || !isExact ? null : writeText(rules, "user", automaton, TEXT, "more");
}

class Writer {
  private readonly names: ReadonlyMap<string, string>;
  private written = 0;

  constructor(
    private readonly rules: Rules,
    private readonly given: EbnfRules,
    private readonly nullable: ReadonlySet<string>,
  ) {
    this.names = new Map(Array.from(given.keys(), (name) => [name, rules.name(`user_${name}`)]));
  }

  root(): string {
    for (const [name, options] of this.given) {
      const own = this.names.get(name) ?? "";
      this.rules.define(own, this.alternatives(options, name));
    }
    return this.names.get("root") ?? "";
  }

  private alternatives(options: EbnfOptions, rule: string): string[] {
    return options.map((items) => items.map((item) => this.item(item, rule)).join(" ") || '""');
  }

  private item(item: EbnfItem, rule: string): string {
    this.written++;
    if (this.written > ITEMS_MAX) throw new GrammarError(null, "the grammar is too large");
    switch (item.kind) {
      case "text":
        return literal(item.text);
      case "rule":
        return this.names.get(item.name) ?? "";
      case "class":
        return this.group(characters(item.set, item.negated, rule));
      case "group":
        return this.group(this.alternatives(item.options, rule));
      case "repeat":
        return this.repeat(item, rule);
    }
  }

  private group(alternatives: readonly string[]): string {
    const [only, more] = alternatives;
    if (only !== undefined && more === undefined) return only;
    return this.rules.define(this.rules.name("user_group"), alternatives);
  }

  /** To the right, one at a time. */
  private repeat({ of, min, max }: Extract<EbnfItem, { kind: "repeat" }>, rule: string): string {
    if (max === null && isNullable(of, this.nullable)) {
      throw new GrammarError(null, `rule '${rule}': what is repeated without end may be empty`);
    }
    const written = this.item(of, rule);
    // What is several parts long is written once.
    const one =
      of.kind === "group" || of.kind === "repeat"
        ? this.rules.define(this.rules.name("user_part"), [written])
        : written;
    this.written += min + (max ?? min) - min;
    if (this.written > ITEMS_MAX) throw new GrammarError(null, "the grammar is too large");
    let rest = "";
    if (max === null) {
      rest = this.rules.name("user_more");
      this.rules.define(rest, ['""', `${one} ${rest}`]);
    }
    for (let i = min; i < (max ?? min); i++) {
      rest = this.rules.define(this.rules.name("user_maybe"), ['""', `${one} ${rest}`.trimEnd()]);
    }
    return [...Array.from({ length: min }, () => one), rest].filter((part) => part !== "").join(" ") || '""';
  }
}

/** Ways to write one character of a class. */
function characters(set: CharSet, negated: boolean, rule: string): readonly string[] {
  // No text holds a character that is reserved; in a class that lists them they are left out.
  const { alternatives, exact } = oneOf(difference(negated ? complement(set) : charSet(set), RESERVED));
  if (exact && alternatives.length > 0) return alternatives;
  const why =
    alternatives.length === 0
      ? "a class is empty"
      : "a class of more than 256 characters beyond ASCII is not supported";
  throw new GrammarError(null, `rule '${rule}': ${why}`);
}

function refuseUndefined(rules: EbnfRules): void {
  for (const [name, options] of rules) {
    const missing = namesIn(options).find((used) => !rules.has(used));
    if (missing !== undefined) throw new GrammarError(null, `rule '${name}': rule '${missing}' is not defined`);
  }
}

function namesIn(options: EbnfOptions): readonly string[] {
  const within = (item: EbnfItem): readonly string[] => {
    if (item.kind === "rule") return [item.name];
    if (item.kind === "repeat") return within(item.of);
    return item.kind === "group" ? namesIn(item.options) : [];
  };
  return options.flat().flatMap(within);
}

function isNullable(item: EbnfItem, nullable: ReadonlySet<string>): boolean {
  switch (item.kind) {
    case "text":
      return item.text === "";
    case "class":
      return false;
    case "rule":
      return nullable.has(item.name);
    case "repeat":
      return item.min === 0 || isNullable(item.of, nullable);
    case "group":
      return item.options.some((items) => items.every((one) => isNullable(one, nullable)));
  }
}

function nullableRules(rules: EbnfRules): ReadonlySet<string> {
  const nullable = new Set<string>();
  for (let before = -1; before !== nullable.size; ) {
    before = nullable.size;
    for (const [name, options] of rules) {
      if (options.some((items) => items.every((item) => isNullable(item, nullable)))) nullable.add(name);
    }
  }
  return nullable;
}

/** A rule that always comes back to itself has no text that ends: the engine gives up on it. */
function refuseEndless(rules: EbnfRules): void {
  const finite = new Set<string>();
  const ends = (item: EbnfItem): boolean => {
    // What is not defined is told elsewhere.
    if (item.kind === "rule") return finite.has(item.name) || !rules.has(item.name);
    if (item.kind === "repeat") return item.min === 0 || ends(item.of);
    return item.kind !== "group" || item.options.some((items) => items.every(ends));
  };
  for (let before = -1; before !== finite.size; ) {
    before = finite.size;
    for (const [name, options] of rules) if (options.some((items) => items.every(ends))) finite.add(name);
  }
  const endless = [...rules.keys()].find((name) => !finite.has(name));
  if (endless !== undefined) throw new GrammarError(null, `rule '${endless}' goes on without end`);
}

/** A rule that begins with itself would be opened without end. */
function refuseLeftRecursion(rules: EbnfRules, nullable: ReadonlySet<string>): void {
  const firstOf = (item: EbnfItem): readonly string[] => {
    if (item.kind === "rule") return [item.name];
    if (item.kind === "repeat") return firstOf(item.of);
    return item.kind === "group" ? firsts(item.options) : [];
  };
  const firsts = (options: EbnfOptions): readonly string[] =>
    options.flatMap((items) => {
      const end = items.findIndex((item) => !isNullable(item, nullable));
      return items.slice(0, end < 0 ? items.length : end + 1).flatMap(firstOf);
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
