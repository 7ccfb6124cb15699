/**
 * Deterministic automata over code points: what a pattern, a length or a closing text allows, before it is written as the
 * rules of a grammar. Invariant: from every state a final one can be reached, or the automaton has no state at all.
 */
import { type CharSet, complement, intersection, type Range, union } from "./charset.ts";

export interface Transition {
  readonly on: CharSet;
  readonly to: number;
}

export interface State {
  readonly final: boolean;
  /** Disjoint sets. */
  readonly transitions: readonly Transition[];
}

/** State 0 is the first; no states: nothing matches. */
export type Automaton = readonly State[];

/** States of one automaton: a bound on what one pattern may cost to compile. */
export const STATES_MAX = 2000;

export class AutomatonTooLarge extends Error {
  override readonly name = "AutomatonTooLarge";
}

/** States are made from keys as they are met. */
export function explore<T>(
  start: T,
  keyOf: (state: T) => string,
  isFinal: (state: T) => boolean,
  successors: (state: T) => readonly { readonly on: CharSet; readonly to: T }[],
): Automaton {
  const numbers = new Map([[keyOf(start), 0]]);
  const pending = [start];
  const states: State[] = [];
  for (let state = pending.shift(); state !== undefined; state = pending.shift()) {
    const merged = new Map<number, CharSet>();
    for (const { on, to } of successors(state)) {
      if (on.length === 0) continue;
      const key = keyOf(to);
      let number = numbers.get(key);
      if (number === undefined) {
        number = numbers.size;
        if (number >= STATES_MAX) throw new AutomatonTooLarge(`more than ${STATES_MAX} states`);
        numbers.set(key, number);
        pending.push(to);
      }
      merged.set(number, union(merged.get(number) ?? [], on));
    }
    states.push({ final: isFinal(state), transitions: Array.from(merged, ([to, on]) => ({ on, to })) });
  }
  return trimmed(states);
}

/** Without the states that lead nowhere. */
export function trimmed(states: readonly State[]): Automaton {
  const alive = new Set(states.flatMap(({ final }, index) => (final ? [index] : [])));
  for (let before = -1; before !== alive.size; ) {
    before = alive.size;
    for (const [index, { transitions }] of states.entries()) {
      if (transitions.some(({ to }) => alive.has(to))) alive.add(index);
    }
  }
  if (!alive.has(0)) return [];
  const number = new Map([...alive].sort((a, b) => a - b).map((old, index) => [old, index]));
  return states.flatMap((state, index) => {
    if (!alive.has(index)) return [];
    const transitions = state.transitions.flatMap(({ on, to }) => {
      const target = number.get(to);
      return target === undefined ? [] : [{ on, to: target }];
    });
    return [{ final: state.final, transitions }];
  });
}

/** What both match. */
export function both(a: Automaton, b: Automaton): Automaton {
  if (a.length === 0 || b.length === 0) return [];
  return explore<readonly [number, number]>(
    [0, 0],
    ([x, y]) => `${x},${y}`,
    ([x, y]) => a[x]?.final === true && b[y]?.final === true,
    ([x, y]) =>
      (a[x]?.transitions ?? []).flatMap((p) =>
        (b[y]?.transitions ?? []).map((q) => ({ on: intersection(p.on, q.on), to: [p.to, q.to] as const })),
      ),
  );
}

/** Texts of `min` to `max` code points of `alphabet`; max null: no end. */
export function ofLength(min: number, max: number | null, alphabet: CharSet): Automaton {
  const last = max ?? min;
  return explore<number>(
    0,
    String,
    (length) => length >= min,
    (length) => {
      if (length < last) return [{ on: alphabet, to: length + 1 }];
      return max === null ? [{ on: alphabet, to: length }] : [];
    },
  );
}

/** Texts of `alphabet` that do not hold `forbidden`. */
export function without(forbidden: string, alphabet: CharSet): Automaton {
  const characters = Array.from(forbidden);
  return explore<number>(
    0,
    String,
    () => true,
    (matched) => kmpSteps(characters, matched, alphabet).filter(({ to }) => to < characters.length),
  );
}

/** Texts of `alphabet` that end with `closer` and hold it nowhere before. */
export function until(closer: string, alphabet: CharSet): Automaton {
  const characters = Array.from(closer);
  const all = union(alphabet, ...characters.map((character) => [rangeOf(character)]));
  return explore<number>(
    0,
    String,
    (matched) => matched === characters.length,
    (matched) => (matched === characters.length ? [] : kmpSteps(characters, matched, all)),
  );
}

/** Where a character leads in the search for a text of which `matched` characters were just read (Knuth, Morris, Pratt 1977). */
export function kmpSteps(text: readonly string[], matched: number, alphabet: CharSet): Transition[] {
  const read = text.slice(0, matched);
  const steps: Transition[] = [];
  let rest = alphabet;
  for (const character of new Set(text)) {
    const seen = [...read, character];
    let to = Math.min(seen.length, text.length);
    while (to > 0 && seen.slice(seen.length - to).join("") !== text.slice(0, to).join("")) to--;
    const on: CharSet = [rangeOf(character)];
    steps.push({ on: intersection(on, alphabet), to });
    rest = intersection(rest, complement(on));
  }
  return [...steps, { on: rest, to: 0 }];
}

function rangeOf(character: string): Range {
  const code = character.codePointAt(0) ?? 0;
  return [code, code];
}
