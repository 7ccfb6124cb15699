/** Whether a text is one of an automaton's. */
import type { Automaton } from "../../../src/text/grammar/automaton.ts";
import { accepts } from "../../../src/text/grammar/conforms.ts";

export function conformsTo(automaton: Automaton, text: string): boolean {
  return accepts(automaton, Array.from(text));
}
