/**
 * Regular expression → automaton of the texts that it matches as a whole: Thompson's construction (1968), then subsets.
 * An expression without anchors matches anywhere, so whatever stands before and after is part of the text.
 */
import { type Automaton, explore } from "./automaton.ts";
import { ANYTHING, type CharSet, complement, intersection } from "./charset.ts";
import { RegexError, type RegexTree } from "./regex-tree.ts";

interface NfaState {
  readonly free: number[];
  readonly steps: { readonly on: CharSet; readonly to: number }[];
  /** Passed only at the beginning (end) of the text. */
  readonly atStart: number[];
  readonly atEnd: number[];
}

/** Above that an expression is unrolled too far. */
const NFA_STATES_MAX = 20_000;

/** @throws RegexError, AutomatonTooLarge */
export function regexAutomaton(tree: RegexTree, alphabet: CharSet = ANYTHING): Automaton {
  const nfa = new Nfa();
  const start = nfa.state();
  nfa.step(start, ANYTHING, start);
  const body = nfa.state();
  nfa.free(start, body);
  const tail = nfa.add(tree, body);
  nfa.step(tail, ANYTHING, tail);
  // The text's first state stands before any character, where `^` may be passed; later ones do not.
  return explore(
    nfa.closure([start], true),
    (set) => `${set.states.join(",")}${set.first ? "^" : ""}`,
    (set) => nfa.accepts(set, tail),
    (set) => nfa.successors(set.states, alphabet),
  );
}

interface Subset {
  readonly states: readonly number[];
  readonly first: boolean;
}

class Nfa {
  private readonly states: NfaState[] = [];

  state(): number {
    if (this.states.length >= NFA_STATES_MAX) throw new RegexError("the expression is too large");
    this.states.push({ free: [], steps: [], atStart: [], atEnd: [] });
    return this.states.length - 1;
  }

  free(from: number, to: number): void {
    this.at(from).free.push(to);
  }

  step(from: number, on: CharSet, to: number): void {
    this.at(from).steps.push({ on, to });
  }

  /** Adds `tree` behind `from`; returns the state behind it. */
  add(tree: RegexTree, from: number): number {
    switch (tree.kind) {
      case "set": {
        const to = this.state();
        this.step(from, tree.set, to);
        return to;
      }
      case "sequence":
        return tree.parts.reduce((at, part) => this.add(part, at), from);
      case "choice": {
        const to = this.state();
        for (const option of tree.options) {
          const begin = this.state();
          this.free(from, begin);
          this.free(this.add(option, begin), to);
        }
        return to;
      }
      case "repeat":
        return this.repeat(tree, from);
      case "start": {
        const to = this.state();
        this.at(from).atStart.push(to);
        return to;
      }
      case "end": {
        const to = this.state();
        this.at(from).atEnd.push(to);
        return to;
      }
    }
  }

  private repeat({ of, min, max }: Extract<RegexTree, { kind: "repeat" }>, from: number): number {
    let at = from;
    for (let i = 0; i < min; i++) at = this.add(of, at);
    const end = this.state();
    if (max === null) {
      const loop = this.state();
      this.free(at, loop);
      this.free(this.add(of, loop), loop);
      this.free(loop, end);
      return end;
    }
    for (let i = min; i < max; i++) {
      this.free(at, end);
      at = this.add(of, at);
    }
    this.free(at, end);
    return end;
  }

  /** All states that are reached without a character. */
  closure(from: readonly number[], first: boolean): Subset {
    const seen = new Set(from);
    const pending = [...from];
    for (let state = pending.pop(); state !== undefined; state = pending.pop()) {
      const { free, atStart } = this.at(state);
      for (const to of first ? [...free, ...atStart] : free) {
        if (seen.has(to)) continue;
        seen.add(to);
        pending.push(to);
      }
    }
    return { states: [...seen].sort((a, b) => a - b), first };
  }

  /** Whether the text may end here: `$` is passed, too. */
  accepts({ states, first }: Subset, goal: number): boolean {
    const seen = new Set(states);
    const pending = [...states];
    for (let state = pending.pop(); state !== undefined; state = pending.pop()) {
      const { free, atStart, atEnd } = this.at(state);
      for (const to of first ? [...free, ...atEnd, ...atStart] : [...free, ...atEnd]) {
        if (seen.has(to)) continue;
        seen.add(to);
        pending.push(to);
      }
    }
    return seen.has(goal);
  }

  /** Disjoint sets of characters, each with the states that all of it leads to. */
  successors(states: readonly number[], alphabet: CharSet): { readonly on: CharSet; readonly to: Subset }[] {
    const steps = states.flatMap((state) => this.at(state).steps);
    let parts: { readonly on: CharSet; readonly to: readonly number[] }[] = [{ on: alphabet, to: [] }];
    for (const { on, to } of steps) {
      const outside = complement(on);
      parts = parts.flatMap((part) => [
        { on: intersection(part.on, on), to: [...part.to, to] },
        { on: intersection(part.on, outside), to: part.to },
      ]);
      parts = parts.filter((part) => part.on.length > 0);
    }
    return parts
      .filter(({ to }) => to.length > 0)
      .map(({ on, to }) => ({ on, to: this.closure([...new Set(to)], false) }));
  }

  private at(state: number): NfaState {
    const found = this.states[state];
    if (found === undefined) throw new RangeError(`no state ${state}`);
    return found;
  }
}
