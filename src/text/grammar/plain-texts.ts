/** Grammars of texts that are no JSON: a regular expression, which must match the whole text, or one of several choices. */
import { AutomatonTooLarge } from "./automaton.ts";
import { ANYTHING, difference } from "./charset.ts";
import { bareText, RESERVED } from "./dialect.ts";
import { GrammarError, SchemaTooLarge } from "./errors.ts";
import { regexAutomaton } from "./regex-automaton.ts";
import { parseRegex } from "./regex-parser.ts";
import { RegexError } from "./regex-tree.ts";
import { literalsRule, type Rules } from "./rules.ts";
import { literalText, writeText } from "./text-form.ts";

const CHOICES_MAX = 5000;
const TEXT = bareText("", difference(ANYTHING, RESERVED));

/** The rule of the texts that `pattern` matches from end to end. @throws GrammarError */
export function regexRule(rules: Rules, pattern: string): string {
  try {
    const whole = { kind: "sequence", parts: [{ kind: "start" }, parseRegex(pattern), { kind: "end" }] } as const;
    const automaton = regexAutomaton(whole, TEXT.alphabet);
    const rule = writeText(rules, "regex", automaton, TEXT, "more", () => {
      throw new RegexError("a class of more than 256 characters beyond ASCII is not supported");
    });
    if (rule === null) throw new RegexError("no text can match");
    return rule;
  } catch (error) {
    if (!(error instanceof RegexError || error instanceof AutomatonTooLarge)) throw error;
    throw new GrammarError(null, error.message);
  }
}

/** The rule of the choices. @throws GrammarError */
export function choiceRule(rules: Rules, choices: readonly string[]): string {
  if (choices.length === 0) throw new GrammarError(null, "there must be at least one choice");
  if (choices.length > CHOICES_MAX) throw new SchemaTooLarge("choices", choices.length, CHOICES_MAX);
  for (const [i, choice] of choices.entries()) {
    if (choice.isWellFormed() && literalText(choice, TEXT) !== null) continue;
    throw new GrammarError(null, `choice ${i} holds characters that no model writes`);
  }
  const entries = [...new Set(choices)].map((text) => ({ text, rest: "" }));
  return literalsRule(rules, "choice", entries);
}
