/**
 * Requests without a seed, through the scheduler: the tokens of drafting rounds follow the target's own law, computed
 * here from its logits in float64. A target cut to a tiny vocabulary makes every pair of tokens frequent enough to test.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { kvStates } from "../../src/cache/state-factory.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { SamplingParams } from "../../src/engine/protocol.ts";
import { int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import { chiSquare, type Fit } from "../decoding/chi-square.ts";
import { openTestMlx } from "../support/native.ts";
import { loadGoldenPair, type Pair, runAll, speculator } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { request } from "./tiny.ts";

setDefaultTimeout(120_000);
const V = 4;
const REQUESTS = 600;
/** Normal deviates. */
const Z_MAX = 4.5;
/** Behind each possible first token stands a draft for lookup: right after [2, 3, t]. */
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

interface Law {
  readonly temperature: number;
  readonly topK: number;
  readonly presence: number;
}

/** The law of the token behind PROMPT and `completion`. */
function exact({ model, layout }: Pair, { temperature, topK, presence }: Law, completion: readonly number[]): number[] {
  const states = model.newStates(kvStates(0, layout), 64);
  const ids = [...PROMPT, ...completion];
  const logits = scope(() => {
    const { hidden } = model.forward(int32Array(ids), new StepBatch([{ states, count: ids.length, offset: 0 }]));
    const all = toFloat32(model.logits(hidden));
    const last = (ids.length - 1) * model.vocabSize;
    return Array.from(all.subarray(last, last + V));
  });
  for (const state of states) state.dispose();
  const shaped = logits.map((x, id) => (x - (completion.includes(id) ? presence : 0)) / temperature);
  const least = topK === 0 ? Number.NEGATIVE_INFINITY : ([...shaped].sort((a, b) => b - a)[topK - 1] ?? 0);
  const weights = shaped.map((x) => (x >= least ? Math.exp(x) : 0));
  const mass = weights.reduce((sum, x) => sum + x, 0);
  return weights.map((x) => x / mass);
}

/** Probabilities of the second and third token, over all first ones: [V · V]. */
function exactPairs(pair: Pair, law: Law): number[] {
  const cells = new Array<number>(V * V).fill(0);
  for (const [a, p] of exact(pair, law, []).entries()) {
    for (const [b, q] of exact(pair, law, [a]).entries()) {
      for (const [c, r] of exact(pair, law, [a, b]).entries()) cells[b * V + c] = (cells[b * V + c] ?? 0) + p * q * r;
    }
  }
  return cells;
}

/** @param judge the law that the draws are compared with */
function drawn(
  pair: Pair,
  law: Law,
  policy: Speculator | null,
  judge = law,
): { fit: Fit; drafted: number; accepted: number } {
  const sampling: SamplingParams = {
    ...GREEDY,
    temperature: law.temperature,
    topK: law.topK,
    presencePenalty: law.presence,
    seed: null,
  };
  const asked = Array.from({ length: REQUESTS }, () => request({ promptIds: PROMPT, maxNewTokens: 4, sampling }));
  const counts = new Float64Array(V * V);
  let [drafted, accepted] = [0, 0];
  const options = { vocab: V, maxBatch: 16, ...(policy !== null && { speculator: policy }) };
  for (const { ids, stats } of runAll(pair, asked, options)) {
    const cell = (ids[1] ?? 0) * V + (ids[2] ?? 0);
    counts[cell] = (counts[cell] ?? 0) + 1;
    drafted += stats?.drafted ?? 0;
    accepted += stats?.accepted ?? 0;
  }
  return { fit: chiSquare(counts, exactPairs(pair, judge)), drafted, accepted };
}

const SOFT: Law = { temperature: 2.5, topK: 0, presence: 0 };
const CUT: Law = { temperature: 3, topK: 3, presence: 2 };
const [dspark, dflash, dflash2] = NAMES;
const drafter = (pair: Pair) => speculator({ drafter: pair.drafter, cap: 2 });
const lookup = () => speculator({});
const both = (pair: Pair) => speculator({ drafter: pair.drafter, cap: 2, lookup: true, confidenceThreshold: 0.3 });

test("no drafts", () => {
  const pair = pairs.get(dspark) as Pair;
  const { fit } = drawn(pair, SOFT, null);
  expect(fit.z).toBeLessThan(Z_MAX);
  // The law of another temperature is told apart by this many draws.
  expect(drawn(pair, { ...SOFT, temperature: 3.4 }, null, SOFT).fit.z).toBeGreaterThan(Z_MAX);
});

test.each([
  ["a drafter's law", dspark, SOFT, drafter],
  ["truncated and penalized", dspark, CUT, drafter],
  ["independent drafts", dflash, SOFT, drafter],
  ["a selector's law", dflash2, SOFT, drafter],
  ["certain drafts, truncated and penalized", dspark, CUT, lookup],
  ["both, cut by confidence", dspark, SOFT, both],
] as const)("%s", (_, name, law, policy) => {
  const pair = pairs.get(name) as Pair;
  const { fit, drafted, accepted } = drawn(pair, law, policy(pair));
  expect(fit.impossible).toBe(0);
  expect(fit.z).toBeLessThan(Z_MAX);
  // Drafts stand and fall: both laws are at work.
  expect(accepted).toBeGreaterThan(REQUESTS / 20);
  expect(drafted - accepted).toBeGreaterThan(REQUESTS / 20);
});
