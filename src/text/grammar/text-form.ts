/** How a dialect writes strings, and the rules of an automaton of their characters in that form. */
import { type Automaton, ofLength, type State, trimmed, without } from "./automaton.ts";
import { type CharSet, charSet, difference, intersection, isSubset, NON_ASCII, size } from "./charset.ts";
import { charClass, literal, oneOf, type Rules } from "./rules.ts";

export interface TextForm {
  /** Fragment in front of the characters; "" for none. */
  readonly open: string;
  /** Fragment behind them; "" for none. */
  readonly close: string;
  /** Characters that can be written at all. */
  readonly alphabet: CharSet;
  /** Of them, those that stand for themselves. */
  readonly plain: CharSet;
  /** The others: code point → the letter behind a backslash. */
  readonly escapes: ReadonlyMap<number, string>;
  /** The rule of everything that may stand behind a backslash, where any character may. */
  readonly anyEscape: ((rules: Rules) => string) | null;
  /** Characters of which one follows; "": not known. */
  readonly follow: string;
  /** What no text may hold, since it would end it for whoever reads it; "": nothing. */
  readonly forbidden: string;
}

/** Every text that can be written. */
export function anyText({ alphabet, forbidden }: TextForm): Automaton {
  return forbidden === "" ? ofLength(0, null, alphabet) : without(forbidden, alphabet);
}

/** What to do with more than 256 characters beyond ASCII that are not all: an ASCII class cannot hold them (§3.6). */
export type Inexact = "fewer" | "more";

/**
 * Rules for the texts of `automaton`, closer included, in a form that the engine decides quickly: each state a rule, the
 * character first, the next state behind it (§3.5). The opener is the caller's. Null: the form cannot write any of them.
 * @param automaton over `form.alphabet`
 * @param onInexact called when characters are left out or let in
 */
export function writeText(
  rules: Rules,
  hint: string,
  automaton: Automaton,
  form: TextForm,
  inexact: Inexact = "fewer",
  onInexact: () => void = () => undefined,
): string | null {
  const pruned = inexact === "fewer" ? withoutVast(automaton, onInexact) : automaton;
  if (pruned.length === 0) return null;
  const names = pruned.map(() => rules.name(hint));
  for (const [index, state] of pruned.entries()) {
    const alternatives = state.transitions.flatMap(({ on, to }) => {
      const target = pruned[to];
      const next = target !== undefined && isEnd(target) ? form.close : (names[to] ?? "");
      if (!exact(on)) onInexact();
      return characters(rules, on, form).map((character) => `${character} ${next}`.trimEnd());
    });
    const closing = state.final ? [form.close === "" ? '""' : form.close] : [];
    // A state that only ends is written where it is reached, unless it is the first.
    if (isEnd(state) && index > 0) continue;
    rules.define(names[index] ?? "", [...closing, ...alternatives], form.follow);
  }
  return names[0] ?? null;
}

function isEnd({ final, transitions }: State): boolean {
  return final && transitions.length === 0;
}

/** Ways to write one character of `set`. */
function characters(rules: Rules, set: CharSet, form: TextForm): string[] {
  const ways = [...oneOf(intersection(set, form.plain)).alternatives];
  if (form.anyEscape !== null && isSubset(form.alphabet, set)) return [...ways, `"\\\\" ${form.anyEscape(rules)}`];
  const letters = Array.from(form.escapes).filter(([code]) => set.some(([from, to]) => code >= from && code <= to));
  if (letters.length === 0) return ways;
  const codes = letters.map(([, letter]) => letter.charCodeAt(0));
  return [...ways, `"\\\\" ${charClass(charSet(codes.map((code) => [code, code])))}`];
}

function exact(set: CharSet): boolean {
  return oneOf(set).exact;
}

/** Takes out of each transition what could only be written with too much beside it. */
function withoutVast(automaton: Automaton, onCut: () => void): Automaton {
  const states = automaton.map(({ final, transitions }) => ({
    final,
    transitions: transitions.flatMap(({ on, to }) => {
      if (exact(on)) return [{ on, to }];
      onCut();
      const kept = difference(on, NON_ASCII);
      return size(kept) === 0 ? [] : [{ on: kept, to }];
    }),
  }));
  return trimmed(states);
}

/** A literal text in the form, opener and closer included; null: it cannot be written. */
export function literalText(text: string, form: TextForm): string | null {
  if (form.forbidden !== "" && text.includes(form.forbidden)) return null;
  let written = "";
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    const holds = (set: CharSet) => set.some(([from, to]) => code >= from && code <= to);
    const letter = form.escapes.get(code);
    if (letter !== undefined) written += `\\${letter}`;
    else if (holds(form.plain)) written += character;
    else return null;
  }
  return [form.open, written === "" ? "" : literal(written), form.close].filter((part) => part !== "").join(" ");
}
