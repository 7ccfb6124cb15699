/**
 * The real engine's masks against brute force: for small random grammars every token that can still lead to a text of the
 * language is legal, and no other. XGrammar reads some forms wrongly; `text/grammar/grammar-text.ts` writes around that.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { GrammarHost } from "../../../src/engine/grammar/host.ts";
import type { GrammarFormat } from "../../../src/text/index.ts";
import { textConstraint } from "../../../src/text/index.ts";
import { isLegal } from "../../support/grammar-walk.ts";
import { tokenizerOf } from "../../text/fixtures.ts";

const LETTERS = ["a", "b", "c"];
const TOKENS = ["</s>", ...LETTERS, ...LETTERS.flatMap((a) => LETTERS.map((b) => a + b))];
const EOS = 0;
/** Longest text that is looked at; completions of what is compared fit in it. */
const LENGTH_MAX = 8;

/** All texts up to `LENGTH_MAX`, by length. */
const TEXTS = (() => {
  const all = [""];
  for (let i = 0; (all[i]?.length ?? LENGTH_MAX) < LENGTH_MAX; i++)
    all.push(...LETTERS.map((letter) => all[i] + letter));
  return all;
})();

const tokenizer = tokenizerOf({
  model: { type: "BPE", vocab: Object.fromEntries(TOKENS.map((token, id) => [token, id])), merges: [] },
  added_tokens: [{ id: EOS, content: "</s>", special: true }],
  decoder: { type: "ByteLevel" },
  pre_tokenizer: { type: "ByteLevel", add_prefix_space: false },
});

const host = new GrammarHost(tokenizer, TOKENS.length);
let rows = 0;

/** Compares along every path of up to `depth` letters. */
async function compare(format: GrammarFormat, isText: (text: string) => boolean, depth = 3): Promise<string | null> {
  const constraint = textConstraint({ format, calls: null, thoughts: { kind: "none" }, controlId: () => undefined });
  if (constraint === null) throw new Error("no constraint");
  const language = new Set(TEXTS.filter(isText));
  const beginnings = new Set(
    [...language].flatMap((text) => Array.from({ length: text.length + 1 }, (_, i) => text.slice(0, i))),
  );
  await host.compile(constraint.ebnf, constraint);
  const mask = new Uint32Array(1);
  const visit = async (ids: readonly number[], text: string): Promise<string | null> => {
    const row = rows++;
    await host.open({ row, key: constraint.ebnf, eosIds: [EOS], accepted: ids });
    await host.matcher(row).masks([], 0, () => mask, 1);
    host.close(row);
    const legal = TOKENS.filter((_, id) => isLegal(mask, id));
    const right = TOKENS.filter((token, id) => (id === EOS ? language.has(text) : beginnings.has(text + token)));
    if (legal.join() !== right.join())
      return `behind '${text}' legal are ${legal}, not ${right}, in\n${constraint.ebnf}`;
    if (text.length >= depth) return null;
    for (const token of legal) {
      if (token === "</s>" || token.length > 1) continue;
      const found = await visit([...ids, TOKENS.indexOf(token)], text + token);
      if (found !== null) return found;
    }
    return null;
  };
  return visit([], "");
}

const word = fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: 5 });
const words = fc.uniqueArray(word, { minLength: 1, maxLength: 8 });
const oneOf = (list: readonly string[]) => new RegExp(`^(?:${list.join("|")})$`);

describe("masks", () => {
  test("of choices", async () => {
    await fc.assert(
      fc.asyncProperty(words, async (choices) => {
        const pattern = oneOf(choices);
        expect(await compare({ kind: "choice", choices }, (text) => pattern.test(text), 4)).toBeNull();
      }),
      { numRuns: 60 },
    );
  }, 60_000);

  test("of grammars that requests bring: literals, references, classes, repetitions", async () => {
    const part = fc.oneof(
      word.map((text) => ({ ebnf: `"${text}"`, regex: text })),
      fc.constantFrom(
        { ebnf: "[ab]", regex: "[ab]" },
        { ebnf: "[^a]", regex: "[bc]" },
        { ebnf: "x", regex: "(?:a|ab)" },
      ),
      fc.constantFrom({ ebnf: '("a" | "bb")?', regex: "(?:a|bb)?" }, { ebnf: "[bc]{1,2}", regex: "[bc]{1,2}" }),
    );
    const sequence = fc.array(part, { minLength: 1, maxLength: 2 });
    await fc.assert(
      fc.asyncProperty(fc.array(sequence, { minLength: 1, maxLength: 5 }), async (options) => {
        const ebnf = options.map((parts) => parts.map((one) => one.ebnf).join(" ")).join(" | ");
        const pattern = oneOf(options.map((parts) => parts.map((one) => one.regex).join("")));
        // Up to ten letters: only beginnings of which all ends are in sight.
        const isText = (text: string) => pattern.test(text);
        fc.pre(options.every((parts) => parts.length < 2 || !parts.every(({ ebnf: own }) => own.length > 5)));
        expect(await compare({ kind: "grammar", ebnf: `root ::= ${ebnf}\nx ::= "a" | "ab"` }, isText, 2)).toBeNull();
      }),
      { numRuns: 60 },
    );
  }, 60_000);

  test("of alternatives that share their beginning", async () => {
    const grammars = [
      '"ba" | "aab" | "aaa"',
      '"abab" | "abb" | "babb" | "bbbba"',
      '"bba" | "abbba" | "bbbbb" | "ababa"',
      "x | y",
    ];
    const more = 'x ::= "aabab" | "bbaab" | "b"\ny ::= "aabba" | "aab" | "baaa" | "abb"';
    for (const ebnf of grammars) {
      const choices: readonly string[] = (ebnf === "x | y" ? more : ebnf).match(/[ab]+(?=")/g) ?? [];
      const found = await compare(
        { kind: "grammar", ebnf: `root ::= ${ebnf}\n${more}` },
        (text) => choices.includes(text),
        5,
      );
      expect(found).toBeNull();
    }
  });

  test("of expressions", async () => {
    const atom = fc.constantFrom("a", "b", "[ab]", "[^b]", "(ab|ba)", "(a|b|abc)", "c?", "[ac]{1,2}");
    await fc.assert(
      fc.asyncProperty(
        fc.array(atom, { minLength: 1, maxLength: 3 }),
        fc.constantFrom("", "|ab", "|abab|abba|aba"),
        async (atoms, more) => {
          const pattern = `(?:${atoms.join("")}${more})`;
          const native = new RegExp(`^${pattern}$`);
          expect(await compare({ kind: "regex", pattern }, (text) => native.test(text), 3)).toBeNull();
        },
      ),
      { numRuns: 60 },
    );
  }, 60_000);
});
