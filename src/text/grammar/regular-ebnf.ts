/**
 * A grammar without recursion is a regular expression: as an automaton its masks are found quickly, however ambiguous it
 * was written (a repetition of repetitions takes XGrammar 12 ms a mask).
 */
import { type Automaton, AutomatonTooLarge } from "./automaton.ts";
import { type CharSet, charsOf, complement } from "./charset.ts";
import type { EbnfItem, EbnfOptions, EbnfRules } from "./ebnf-reader.ts";
import { regexAutomaton } from "./regex-automaton.ts";
import { RegexError, type RegexTree } from "./regex-tree.ts";

/** Parts that rules may be copied to. */
const PARTS_MAX = 20_000;

/** The automaton of the texts of `root`; null: the grammar refers to itself, or is too large for one. */
export function regularGrammar(rules: EbnfRules, alphabet: CharSet): Automaton | null {
  try {
    const body = new Reader(rules).rule("root");
    return regexAutomaton({ kind: "sequence", parts: [{ kind: "start" }, body, { kind: "end" }] }, alphabet);
  } catch (error) {
    if (error instanceof NotRegular || error instanceof RegexError || error instanceof AutomatonTooLarge) return null;
    throw error;
  }
}

class NotRegular extends Error {
  override readonly name = "NotRegular";
}

class Reader {
  private readonly open = new Set<string>();
  private parts = 0;

  constructor(private readonly rules: EbnfRules) {}

  rule(name: string): RegexTree {
    const options = this.rules.get(name);
    if (options === undefined || this.open.has(name)) throw new NotRegular(name);
    this.open.add(name);
    const tree = this.choice(options);
    this.open.delete(name);
    return tree;
  }

  private choice(options: EbnfOptions): RegexTree {
    return {
      kind: "choice",
      options: options.map((items) => ({ kind: "sequence", parts: items.map((item) => this.item(item)) })),
    };
  }

  private item(item: EbnfItem): RegexTree {
    this.parts++;
    if (this.parts > PARTS_MAX) throw new NotRegular("too large");
    switch (item.kind) {
      case "text":
        return {
          kind: "sequence",
          parts: Array.from(item.text, (character) => ({ kind: "set", set: charsOf(character) })),
        };
      case "class":
        return { kind: "set", set: item.negated ? complement(item.set) : item.set };
      case "rule":
        return this.rule(item.name);
      case "group":
        return this.choice(item.options);
      case "repeat":
        return { kind: "repeat", of: this.item(item.of), min: item.min, max: item.max };
    }
  }
}
