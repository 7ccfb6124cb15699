/** Grammars, expressions and choices that requests bring: read before the engine sees them, refused with a reason. */
import { describe, expect, test } from "bun:test";
import { GrammarError, type GrammarFormat, textConstraint } from "../../../src/text/index.ts";

function refusal(format: GrammarFormat): string {
  try {
    textConstraint({ format, calls: null, thoughts: { kind: "none" }, controlId: () => undefined });
  } catch (error) {
    if (error instanceof GrammarError) return error.message;
    throw error;
  }
  return "";
}

const grammar = (ebnf: string) => refusal({ kind: "grammar", ebnf });

describe("grammars", () => {
  test("are taken", () => {
    for (const ebnf of [
      'root ::= "a"',
      'root ::= item+ # items\nitem ::= [a-z]{2,3} ("," | ";")?\n',
      'root ::= "\\u00e9" | [^\\x00-\\x1f"]* | "é" (=[ab])',
      'root ::= "(" root? ")"',
      'root ::= "a" (root ",")* last{0,2}\nlast ::= "x" | "y" last',
      'root ::= ("a"?)*',
      'root ::= (("a"{1000}){1000}){1000}',
      `root ::= ${"(".repeat(24)}"a"${")".repeat(24)}`,
    ]) {
      expect([ebnf, grammar(ebnf)]).toEqual([ebnf, ""]);
    }
  });

  test("are refused for what would spoil the engine", () => {
    const faults: readonly (readonly [string, string])[] = [
      ["", "no rule 'root'"],
      ['start ::= "a"', "no rule 'root'"],
      ["root ::= other", "rule 'root': rule 'other' is not defined"],
      ['root ::= "a" | root "b"', "rule 'root' begins with itself"],
      ['root ::= empty root "b" | "a"\nempty ::= "" | "x"', "begins with itself"],
      ['root ::= a\na ::= b "x"\nb ::= a | "y"', "begins with itself"],
      ['root ::= "a" root', "rule 'root' goes on without end"],
      ['root ::= "a" | b\nb ::= ("c" | "d" b?) c+\nc ::= "x" c | "y" b', "rule 'b' goes on without end"],
      ['root ::= ("a"?)* "(" root ")" | "x"', "what is repeated without end may be empty"],
      [`root ::= ${"(".repeat(200)}"a"${")".repeat(200)}`, "nested deeper than 24"],
      ['root ::= "a"{1001}', "more than 1000"],
      ['root ::= "a"{3,2}', "out of order"],
      ['root ::= ("a"', "'(' without ')'"],
      ['root ::= "a', "cannot be read at"],
      ['root ::= "a"\nroot ::= "b"', "defined twice"],
      ["root ::= [z-a]", "no order"],
      ["root ::= []", "a class is empty"],
      ["root ::= [^é]", "more than 256 characters beyond ASCII"],
      ['root ::= "\\q"', "unknown escape \\q"],
      [`root ::= ${'"a"{1000} '.repeat(21)}`, "too large"],
      [`root ::= "${"a".repeat(262_144)}"`, "larger than 262144 bytes"],
    ];
    for (const [ebnf, why] of faults) expect(grammar(ebnf), ebnf.slice(0, 60)).toContain(why);
  });
});

describe("expressions", () => {
  test("that match nothing, or look around, are refused", () => {
    expect(refusal({ kind: "regex", pattern: "\\d{3}-[a-z]+" })).toBe("");
    expect(refusal({ kind: "regex", pattern: "a$b" })).toContain("no text can match");
    expect(refusal({ kind: "regex", pattern: "(?=a)" })).toContain("lookaround");
    expect(refusal({ kind: "regex", pattern: "[^é]" })).toContain("more than 256 characters beyond ASCII");
    expect(refusal({ kind: "regex", pattern: "(" })).toContain("not a regular expression");
  });
});

describe("choices", () => {
  test("are at least one, of what a model can write", () => {
    expect(refusal({ kind: "choice", choices: ["yes", "no", ""] })).toBe("");
    expect(refusal({ kind: "choice", choices: [] })).toContain("at least one choice");
    expect(refusal({ kind: "choice", choices: ["\ud800"] })).toContain("choice 0");
    expect(refusal({ kind: "choice", choices: ["a", "\u0001"] })).toContain("choice 1");
    expect(refusal({ kind: "choice", choices: Array.from({ length: 5001 }, String) })).toContain("choices 5001 > 5000");
  });
});
