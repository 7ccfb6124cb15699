/**
 * Requests with a grammar and without a seed, through the scheduler: the tokens follow the target's own masked law,
 * computed here from its logits in float64, although drafts are drawn from an unmasked one and cut (structured-output.md
 * §5). A target cut to a tiny vocabulary makes every pair of tokens frequent enough to test.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { kvStates } from "../../src/cache/state-factory.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { SamplingParams } from "../../src/engine/protocol.ts";
import { int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import { chiSquare, type Fit } from "../decoding/chi-square.ts";
import { type Automaton, AutomatonCompiler, specOf } from "../support/automaton.ts";
import { openTestMlx } from "../support/native.ts";
import { loadGoldenPair, type Pair, runAll, speculator } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { request } from "./tiny.ts";

setDefaultTimeout(120_000);
const V = 5;
const EOS = 4;
const REQUESTS = 900;
/** Normal deviates. */
const Z_MAX = 4.5;
const PROMPT = [0, 1, 2, 3, 0, 1, 3, 2, 3, 1, 2, 0, 2, 3, 2, 0, 1, 2, 3, 3, 1, 0, 2, 3];

const NAMES = ["dspark_specforge_yarn", "dflash", "dflash2"] as const;
const pairs = new Map<string, Pair>();
beforeAll(() => {
  openTestMlx();
  for (const name of NAMES) pairs.set(name, loadGoldenPair(name, "fused"));
});
afterAll(() => {
  for (const pair of pairs.values()) pair.dispose();
  expect(liveArrays()).toBe(0);
  expect(liveCpuObjects()).toBe(0);
});

/** By the token before, the beginning last. */
type Legal = readonly (readonly number[])[];
/** Two or three of five may follow, and behind some the end. */
const LEGAL: Legal = [[0, 2, EOS], [1, 2, 3], [0, 3], [1, 2, EOS], [], [0, 1, 3]];
/** Behind token 2 nothing may follow, not even the end. */
const DEAD_ENDS: Legal = [[0, 1, 2, EOS], [1, 2, 3], [], [1, 2, EOS], [], [0, 1, 3]];
const START = 5;

const grammarOf = (legal: Legal): Automaton => ({
  legal: (state, id) => (legal[state === 0 ? START : state - 1] ?? []).includes(id),
  next: (_, id) => id + 1,
  accepting: (state) => (legal[state === 0 ? START : state - 1] ?? []).includes(EOS),
  // Wrong now and then, illegal never mind.
  forced: (state) => (state === 2 ? [2, 3] : []),
});

interface Law {
  readonly temperature: number;
  readonly topK: number;
  readonly presence: number;
  readonly legal: Legal;
}

/** The masked law of the token behind PROMPT and `completion`. */
function exact({ model, layout }: Pair, law: Law, completion: readonly number[]): number[] {
  const { temperature, topK, presence } = law;
  const states = model.newStates(kvStates(0, layout), 64);
  const ids = [...PROMPT, ...completion];
  const logits = scope(() => {
    const { hidden } = model.forward(int32Array(ids), new StepBatch([{ states, count: ids.length, offset: 0 }]));
    const all = toFloat32(model.logits(hidden));
    const last = (ids.length - 1) * model.vocabSize;
    return Array.from(all.subarray(last, last + V));
  });
  for (const state of states) state.dispose();
  const legal = law.legal[completion.at(-1) ?? START] ?? [];
  const shaped = logits.map((x, id) =>
    legal.includes(id) ? (x - (completion.includes(id) ? presence : 0)) / temperature : Number.NEGATIVE_INFINITY,
  );
  const least = topK === 0 ? Number.NEGATIVE_INFINITY : ([...shaped].sort((a, b) => b - a)[topK - 1] ?? 0);
  const weights = shaped.map((x) => (x >= least ? Math.exp(x) : 0));
  const mass = weights.reduce((sum, x) => sum + x, 0);
  return weights.map((x) => x / mass);
}

/** Probabilities of the second and third token, over all first ones; behind an end, and where nothing may follow, come ends. */
function exactPairs(pair: Pair, law: Law): number[] {
  const cells = new Array<number>(V * V).fill(0);
  const next = (completion: readonly number[]) =>
    (law.legal[completion.at(-1) ?? START]?.length === 0 ? [0, 0, 0, 0, 1] : exact(pair, law, completion)).flatMap(
      (p, id) => (p > 0 ? [[id, p] as const] : []),
    );
  for (const [a, p] of next([])) {
    for (const [b, q] of next([a])) {
      for (const [c, r] of next([a, b])) cells[b * V + c] = (cells[b * V + c] ?? 0) + p * q * r;
    }
  }
  return cells;
}

interface Drawn {
  readonly fit: Fit;
  readonly drafted: number;
  readonly accepted: number;
  readonly cut: number;
  /** Requests that came where nothing may follow. */
  readonly stuck: number;
}

/** @param forced whether the grammar proposes drafts */
function drawn(pair: Pair, law: Law, policy: Speculator | null, forced: boolean, judge = law): Drawn {
  const sampling: SamplingParams = {
    ...GREEDY,
    temperature: law.temperature,
    topK: law.topK,
    presencePenalty: law.presence,
    seed: null,
  };
  const grammars = new AutomatonCompiler({ automata: { g: grammarOf(law.legal) }, vocab: V, forced, deadEnds: true });
  const asked = Array.from({ length: REQUESTS }, () =>
    request({ promptIds: PROMPT, maxNewTokens: 4, sampling, eosIds: [EOS], constraint: specOf("g") }),
  );
  const counts = new Float64Array(V * V);
  let [drafted, accepted, cut, stuck] = [0, 0, 0, 0];
  const options = { vocab: V, maxBatch: 16, grammars, ...(policy !== null && { speculator: policy }) };
  for (const { ids, end, stats } of runAll(pair, asked, options)) {
    const cell = (ids[1] ?? EOS) * V + (ids[2] ?? EOS);
    counts[cell] = (counts[cell] ?? 0) + 1;
    drafted += stats?.drafted ?? 0;
    accepted += stats?.accepted ?? 0;
    cut += stats?.grammar?.cutDrafts ?? 0;
    if (stats !== null) continue;
    expect(end).toBe("no legal token");
    expect(law.legal[ids.at(-1) ?? START]).toEqual([]);
    stuck++;
  }
  return { fit: chiSquare(counts, exactPairs(pair, judge)), drafted, accepted, cut, stuck };
}

const SOFT: Law = { temperature: 2.5, topK: 0, presence: 0, legal: LEGAL };
const CUT: Law = { temperature: 3, topK: 2, presence: 2, legal: LEGAL };
const STUCK: Law = { ...SOFT, legal: DEAD_ENDS };
const [dspark, dflash, dflash2] = NAMES;
const drafter = (pair: Pair) => speculator({ drafter: pair.drafter, cap: 3 });
const lookup = () => speculator({});
const alone = () => speculator({ lookup: false });
const both = (pair: Pair) => speculator({ drafter: pair.drafter, cap: 2, lookup: true, confidenceThreshold: 0.3 });

test("no drafts", () => {
  const pair = pairs.get(dspark) as Pair;
  const { fit } = drawn(pair, SOFT, null, false);
  expect(fit.impossible).toBe(0);
  expect(fit.z).toBeLessThan(Z_MAX);
  // The law of another temperature is told apart by this many draws.
  expect(drawn(pair, { ...SOFT, temperature: 12 }, null, false, SOFT).fit.z).toBeGreaterThan(Z_MAX);
});

test.each([
  ["a drafter's law", dspark, SOFT, drafter, false],
  ["truncated and penalized", dspark, CUT, drafter, false],
  ["independent drafts", dflash, SOFT, drafter, false],
  ["a selector's law", dflash2, SOFT, drafter, false],
  ["certain drafts, truncated and penalized", dspark, CUT, lookup, false],
  ["forced drafts", dspark, SOFT, alone, true],
  ["all, cut by confidence", dspark, SOFT, both, true],
] as const)("%s", (_, name, law, policy, forced) => {
  const pair = pairs.get(name) as Pair;
  const { fit, drafted, accepted, cut } = drawn(pair, law, policy(pair), forced);
  expect(fit.impossible).toBe(0);
  expect(fit.z).toBeLessThan(Z_MAX);
  // Drafts stand and fall, and many are illegal: all laws are at work.
  expect(accepted).toBeGreaterThan(REQUESTS / 20);
  expect(drafted - accepted).toBeGreaterThan(REQUESTS / 50);
  if (policy !== alone) expect(cut).toBeGreaterThan(REQUESTS / 20);
});

/** A row fails where it comes to a dead end, never where a draft does: its tokens up to there follow the law, too. */
test.each([
  ["a drafter's law", dspark, drafter, false],
  ["independent drafts", dflash, drafter, false],
  ["a selector's law", dflash2, drafter, false],
  ["certain drafts", dspark, lookup, false],
  ["all, cut by confidence", dspark, both, true],
] as const)("drafts into dead ends: %s", (_, name, policy, forced) => {
  const pair = pairs.get(name) as Pair;
  const { fit, stuck } = drawn(pair, STUCK, policy(pair), forced);
  expect(fit.impossible).toBe(0);
  expect(fit.z).toBeLessThan(Z_MAX);
  expect(stuck).toBeGreaterThan(REQUESTS / 20);
});
