/** A grammar behind thoughts: every mask is that of its prefix alone, whatever drafts and commits led there. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { startingAt } from "../../src/decoding/after-reasoning.ts";
import type { ConstraintStart, RowConstraint } from "../../src/decoding/constraint.ts";
import { allows } from "../../src/decoding/token-mask.ts";
import { type Automaton, AutomatonCompiler, randomAutomaton, specOf } from "../support/automaton.ts";

setDefaultTimeout(60_000);
const V = 45;
const EOS = [2, 40];
const OPENER = 5;
const CLOSER = 6;
const automaton = randomAutomaton(9, V);

const start = (inside: boolean, openerId: number | null = OPENER): ConstraintStart => ({
  kind: "after_reasoning",
  inside,
  openerId,
  closerId: CLOSER,
});

function open(from: ConstraintStart, maxNewTokens: number, compiler = compilerOf(automaton)): RowConstraint {
  let row: RowConstraint | null = null;
  compiler.compile(specOf("g"), ({ compiled }) => {
    if (compiled === null) return;
    row = compiler.open(compiled, { eosIds: EOS });
    compiled[Symbol.dispose]();
  });
  if (row === null) throw new Error("not compiled");
  return startingAt(from, row, { eosIds: EOS, maxNewTokens, vocab: V });
}

const compilerOf = (g: Automaton) => new AutomatonCompiler({ automata: { g }, vocab: V });

/** What may follow `prefix`, from the definition; null: the text has ended. */
function legalAfter(from: ConstraintStart, maxNewTokens: number, prefix: readonly number[]): Set<number> | null {
  let phase = from.kind === "at_once" || (!from.inside && from.openerId === null) ? "bound" : "before";
  if (from.kind === "after_reasoning" && from.inside) phase = "thoughts";
  let state = 0;
  for (const id of prefix) {
    if (phase === "before" && id === OPENER) phase = "thoughts";
    else if (phase === "thoughts") {
      if (id === CLOSER) phase = "bound";
    } else {
      phase = "bound";
      if (EOS.includes(id)) return null;
      state = automaton.next(state, id);
    }
  }
  const all = Array.from({ length: V }, (_, id) => id);
  if (phase === "thoughts") {
    const spent = prefix.length >= Math.max(0, maxNewTokens - 64);
    return new Set(spent ? [CLOSER] : all.filter((id) => !EOS.includes(id)));
  }
  const grammar = all.filter((id) => (EOS.includes(id) ? automaton.accepting(state) : automaton.legal(state, id)));
  return new Set(phase === "before" ? [...grammar, OPENER] : grammar);
}

const ids = fc.array(fc.oneof({ weight: 3, arbitrary: fc.nat(V - 1) }, fc.constantFrom(OPENER, CLOSER, ...EOS)), {
  maxLength: 9,
});
const starts = fc.constantFrom(start(true), start(false), start(true, null), start(false, null), {
  kind: "at_once",
} as const);

/** Makes a random text legal, mostly: what is illegal becomes a legal id, now and then the closer or the opener. */
function legalize(from: ConstraintStart, maxNewTokens: number, wishes: readonly number[]): number[] {
  const out: number[] = [];
  for (const wish of wishes) {
    const legal = legalAfter(from, maxNewTokens, out);
    if (legal === null) break;
    const choices = [...legal];
    const id = legal.has(wish) ? wish : (choices[wish % choices.length] ?? -1);
    if (EOS.includes(id)) break;
    out.push(id);
  }
  return out;
}

test("masks along a draft are those of its prefixes; a draft is cut at its first illegal token", () => {
  const seen = { crossed: 0, opened: 0, cut: 0, ended: 0, spent: 0 };
  fc.assert(
    fc.property(
      starts,
      fc.constantFrom(20, 66, 70, 200),
      fc.array(fc.record({ draft: ids, legal: fc.boolean(), commit: ids }), { minLength: 1, maxLength: 6 }),
      (from, maxNewTokens, turns) => {
        const row = open(from, maxNewTokens);
        const text: number[] = [];
        for (const { draft: wishes, legal, commit } of turns) {
          const draft = legal ? legalFrom(from, maxNewTokens, text, wishes) : wishes;
          const expected: (Set<number> | null)[] = [legalAfter(from, maxNewTokens, text)];
          let kept = 0;
          for (const id of draft) {
            if (!expected.at(-1)?.has(id)) break;
            kept++;
            expected.push(legalAfter(from, maxNewTokens, [...text, ...draft.slice(0, kept)]));
          }
          const answer = row.masks(draft);
          expect(answer.kept).toBe(kept);
          const words = answer.words();
          expect(words).toHaveLength((kept + 1) * answer.width);
          for (const [i, legalIds] of expected.entries()) {
            if (legalIds === null) continue;
            const own = words.subarray(i * answer.width, (i + 1) * answer.width);
            const actual = Array.from({ length: V }, (_, id) => id).filter((id) => allows(own, id));
            expect(actual).toEqual([...legalIds].sort((a, b) => a - b));
          }
          const crossed = draft.slice(0, kept).includes(CLOSER) && expected.length > 2;
          seen.crossed += Number(crossed);
          seen.opened += Number(text.length === 0 && draft[0] === OPENER && kept > 1);
          seen.cut += Number(kept < draft.length);
          seen.ended += Number(expected.at(-1) === null);
          seen.spent += Number(expected.some((set) => set?.size === 1 && set.has(CLOSER)));
          const forced = row.forced();
          if (forced.length > 0 && text.length > 0) {
            const one = expected[0];
            if (one?.has(CLOSER) && one.size === 1) expect([...forced]).toEqual([CLOSER]);
          }
          const committed = legalFrom(from, maxNewTokens, text, commit);
          row.commit(committed);
          text.push(...committed);
          expect(row.ended).toBe(false);
        }
        row[Symbol.dispose]();
      },
    ),
    { numRuns: 600 },
  );
  expect(Math.min(seen.crossed, seen.opened, seen.cut, seen.ended, seen.spent)).toBeGreaterThan(3);
});

function legalFrom(from: ConstraintStart, maxNewTokens: number, text: readonly number[], wishes: readonly number[]) {
  return legalize(from, maxNewTokens, [...text, ...wishes]).slice(text.length);
}

describe("the states", () => {
  test("free but for the end, then bound; the end of thoughts and the answer may come in one commit", () => {
    const row = open(start(true), 500);
    row.commit([10, 11]);
    expect(row.forced()).toEqual([]);
    const first = Array.from({ length: V }, (_, id) => id).find((id) => automaton.legal(0, id)) ?? -1;
    row.commit([CLOSER, first]);
    const legal = legalAfter(start(true), 500, [10, 11, CLOSER, first]) ?? new Set();
    const words = row.masks([]).words();
    for (let id = 0; id < V; id++) expect(allows(words, id)).toBe(legal.has(id));
    row[Symbol.dispose]();
  });

  test("thoughts that have used up their part are closed by force", () => {
    const row = open(start(true), 70);
    row.commit([10, 11, 12, 13, 14]);
    expect(row.forced()).toEqual([]);
    row.commit([15]);
    expect(row.forced()).toEqual([CLOSER]);
    const { kept, words } = row.masks([16]);
    expect(kept).toBe(0);
    expect(Array.from({ length: V }, (_, id) => id).filter((id) => allows(words(), id))).toEqual([CLOSER]);
    row[Symbol.dispose]();
  });

  test("a text that begins with the answer has no thoughts: its opener is a token like any other", () => {
    const from = start(false);
    const row = open(from, 500);
    const first = Array.from({ length: V }, (_, id) => id).find((id) => id !== OPENER && automaton.legal(0, id)) ?? -1;
    row.commit([first]);
    const legal = legalAfter(from, 500, [first]) ?? new Set();
    const words = row.masks([]).words();
    for (let id = 0; id < V; id++) expect(allows(words, id)).toBe(legal.has(id));
    row[Symbol.dispose]();
  });

  test("an end is told by the grammar, whose row goes with it", () => {
    const compiler = compilerOf({ legal: () => true, next: (s) => s, accepting: () => true, forced: () => [] });
    const row = open(start(true), 500, compiler);
    row.commit([10, CLOSER]);
    expect(row.ended).toBe(false);
    row.commit([EOS[0] ?? -1]);
    expect(row.ended).toBe(true);
    row.stats();
    row[Symbol.dispose]();
    expect(compiler.rowsOpen).toBe(0);
  });
});
