/**
 * Drafting through the scheduler, case by case: golden loops with their acceptance, exact limits, EOS within a block,
 * padding ids, cancels and failures in every phase. Random traffic over all of it is in speculation-random.test.ts.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { LOOKUP_ALONE, LookupIndex } from "../../src/decoding/lookup-index.ts";
import type { Drafter } from "../../src/drafters/drafter.ts";
import type { SamplingParams } from "../../src/engine/protocol.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { batchRuns, loopRuns, loops } from "../support/loop-golden.ts";
import { openTestMlx } from "../support/native.ts";
import { type Backend, loadGoldenPair, type Pair, runAll, speculator, told } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { checkStats } from "../support/spec-stats.ts";
import { type Breakage, harness, outcome, request } from "./tiny.ts";

setDefaultTimeout(60_000);
const BACKENDS = ["fused", "stock"] as const satisfies readonly Backend[];
const pairs = new Map<string, Pair>();
let before = 0;
beforeAll(() => {
  openTestMlx();
  for (const backend of BACKENDS) {
    for (const name of ["drafter_dspark", "drafter_dflash"]) {
      const pair = loadGoldenPair(name, backend);
      // The first forwards make the tables of the rotation.
      runAll(pair, [request()], { speculator: speculator({ drafter: pair.drafter }) });
      pairs.set(`${name} ${backend}`, pair);
    }
  }
});
afterAll(() => {
  for (const pair of pairs.values()) pair.dispose();
  expect(liveArrays()).toBe(0);
  expect(liveCpuObjects()).toBe(0);
});
beforeEach(() => {
  before = liveArrays();
});
afterEach(() => {
  expect(liveArrays()).toBe(before);
});

function pairOf(kind: "dspark" | "dflash", backend: Backend = "fused"): Pair {
  const pair = pairs.get(`drafter_${kind} ${backend}`);
  if (pair === undefined) throw new Error(`no pair ${kind} ${backend}`);
  return pair;
}

/** All but the last, which a limit may clip. */
function inner(lengths: readonly number[]): number[] {
  return lengths.slice(0, -1);
}

const CYCLE = loops.runs.dspark_cap7 as (typeof loopRuns)[number][1];

describe.each([...BACKENDS])("golden loops through the scheduler, %s", (backend) => {
  const drafted = loopRuns.filter(([name, run]) => name.startsWith("d") && run.options.lookup_drafts !== true);
  test.each(drafted)("%s", (name, run) => {
    const pair = pairOf(name.startsWith("dspark") ? "dspark" : "dflash", backend);
    const { drafter } = pair;
    const eosIds = run.eos === null ? [] : [run.eos];
    const asked = request({ promptIds: run.prompt_ids, maxNewTokens: run.max_new_tokens, eosIds });
    const cap = run.options.max_draft_tokens ?? 0;
    const confidenceThreshold = run.options.confidence_threshold ?? 0;
    const [actual] = runAll(pair, [asked], { speculator: speculator({ drafter, cap, confidenceThreshold }) });
    expect(actual?.ids).toEqual([...run.tokens]);
    expect(actual?.end).toBe(run.finish_reason);
    expect(inner(actual?.stats?.acceptLengths ?? [])).toEqual(inner(run.accept_lengths));
    if (run.eos !== null) expect(actual?.stats?.acceptLengths).toEqual([...run.accept_lengths]);
    if (actual !== undefined) checkStats(actual, asked);
  });

  test.each([...batchRuns])("%s", (_, run) => {
    const pair = pairOf("dspark", backend);
    const asked = run.prompts.map((promptIds, i) => request({ promptIds, maxNewTokens: run.max_new_tokens[i] ?? 0 }));
    const policy = speculator({ drafter: pair.drafter, cap: run.max_draft_tokens });
    const rows = runAll(pair, asked, { maxBatch: 4, speculator: policy });
    expect(rows.map(({ ids }) => ids)).toEqual(run.rows.map(({ tokens }) => [...tokens]));
    for (const [i, { stats }] of rows.entries()) {
      expect(inner(stats?.acceptLengths ?? [])).toEqual(inner(run.rows[i]?.accept_lengths ?? []));
    }
  });

  test.each(Object.entries(loops.penalties.runs))("penalties: %s", (_, run) => {
    const pair = pairOf("dspark", backend);
    const sampling: SamplingParams = {
      ...GREEDY,
      presencePenalty: run.options.presence_penalty ?? 0,
      frequencyPenalty: run.options.frequency_penalty ?? 0,
    };
    const { prompt_ids: promptIds, max_new_tokens: maxNewTokens } = loops.penalties;
    const asked = request({ promptIds, maxNewTokens, sampling });
    const [actual] = runAll(pair, [asked], { speculator: speculator({ drafter: pair.drafter }) });
    expect(actual?.ids).toEqual([...run.tokens]);
    expect(inner(actual?.stats?.acceptLengths ?? [])).toEqual(inner(run.accept_lengths));
  });

  test.each(["dspark", "dflash"] as const)("log-probabilities, %s", (kind) => {
    const pair = pairOf(kind, backend);
    const { prompt_ids: promptIds, top, entries } = loops.logprobs;
    const asked = request({ promptIds, maxNewTokens: entries.length, topLogprobs: top });
    const [actual] = runAll(pair, [asked], { speculator: speculator({ drafter: pair.drafter }) });
    expect(actual?.logprobs).toHaveLength(entries.length);
    for (const [i, { token_id, logprob, top: wanted }] of entries.entries()) {
      const entry = actual?.logprobs[i];
      expect(entry?.id).toBe(token_id);
      expect(entry?.logprob).toBeCloseTo(logprob, 3);
      expect(entry?.top.map(([id]) => id)).toEqual(wanted.map(([id]) => id));
      for (const [at, [, value]] of wanted.entries()) expect(entry?.top[at]?.[1]).toBeCloseTo(value, 3);
    }
  });

  test("sampled with a seed: the same text with any drafts, and the reference's acceptance", () => {
    for (const run of loops.coupled_sampling) {
      const sampling = { ...GREEDY, temperature: run.temperature, topP: run.top_p, topK: run.top_k };
      const asked = request({
        promptIds: run.prompt_ids,
        maxNewTokens: run.tokens.length,
        sampling: { ...sampling, seed: String(run.seed) },
      });
      const { drafter } = pairOf("dspark", backend);
      const other = pairOf("dflash", backend);
      const [full] = runAll(other, [asked], { speculator: speculator({ drafter: other.drafter, lookup: true }) });
      const [alone] = runAll(other, [asked], { speculator: speculator({}) });
      const [drafted] = runAll(pairOf("dspark", backend), [asked], { speculator: speculator({ drafter }) });
      for (const each of [full, alone, drafted]) expect(each?.ids).toEqual([...run.tokens]);
      expect(inner(drafted?.stats?.acceptLengths ?? [])).toEqual(inner(run.accept_lengths_dspark));
    }
  });
});

describe("ends", () => {
  const kinds = ["dspark", "dflash", "lookup"] as const;
  const policyOf = (kind: (typeof kinds)[number], pair: Pair) =>
    speculator(kind === "lookup" ? {} : { drafter: pair.drafter, lookup: true });

  test.each(kinds)("the limit is exact, whatever it is: %s", (kind) => {
    const pair = pairOf(kind === "dflash" ? "dflash" : "dspark");
    for (let maxNewTokens = 1; maxNewTokens <= 40; maxNewTokens++) {
      const asked = request({ promptIds: CYCLE.prompt_ids, maxNewTokens });
      const [actual] = runAll(pair, [asked], { speculator: policyOf(kind, pair) });
      expect(actual).toMatchObject({ ids: CYCLE.tokens.slice(0, maxNewTokens), end: "length" });
      if (actual !== undefined) checkStats(actual, asked);
    }
  });

  test.each(kinds)("an EOS ends the text wherever it stands in a block, and nothing behind it is told: %s", (kind) => {
    const pair = pairOf(kind === "dflash" ? "dflash" : "dspark");
    const places = new Set(CYCLE.tokens.map((id) => CYCLE.tokens.indexOf(id)));
    let dropped = 0;
    for (const at of places) {
      const eosIds = [CYCLE.tokens[at] ?? -1];
      const asked = request({ promptIds: CYCLE.prompt_ids, maxNewTokens: 60, eosIds, topLogprobs: 1 });
      const [actual] = runAll(pair, [asked], { speculator: policyOf(kind, pair) });
      expect(actual).toMatchObject({ ids: CYCLE.tokens.slice(0, at + 1), end: "stop" });
      expect(actual?.logprobs).toHaveLength(at + 1);
      if (actual === undefined) continue;
      checkStats(actual, asked);
      const counted = (actual.stats?.acceptLengths ?? []).reduce((sum, length) => sum + length, 0);
      if (counted > at) dropped++;
    }
    // The drafter that knows the cycle runs past an EOS.
    if (kind === "dspark") expect(dropped).toBeGreaterThan(5);
  });

  test("the context window is filled to its last place", () => {
    const pair = pairOf("dspark");
    const policy = speculator({ drafter: pair.drafter, lookup: true });
    const { scheduler, posted, run } = harness(pair, { window: CYCLE.prompt_ids.length + 37, speculator: policy });
    const asked = request({ promptIds: CYCLE.prompt_ids, maxNewTokens: 500 });
    scheduler.submit(asked);
    run();
    expect(outcome(posted, asked.id)).toEqual({ ids: CYCLE.tokens.slice(0, 37), end: "length" });
  });

  test("a text that repeats one token is drafted at length", () => {
    const pair = pairOf("dspark");
    const run = loops.runs.lookup_absorbing as (typeof loopRuns)[number][1];
    const asked = request({ promptIds: run.prompt_ids, maxNewTokens: run.max_new_tokens });
    const [actual] = runAll(pair, [asked], { speculator: speculator({}) });
    expect(actual?.ids).toEqual([...run.tokens]);
    // The reference took 36 rounds: 13 plain ones, then one draft each.
    expect(actual?.stats?.rounds).toBeLessThan(22);
  });
});

describe("a right proposal", () => {
  test.each(["dspark_cap7", "lookup_absorbing"])("is verified in the round that first knows it: %s", (name) => {
    const run = loops.runs[name] as (typeof loopRuns)[number][1];
    const asked = request({ promptIds: run.prompt_ids, maxNewTokens: run.max_new_tokens });
    const [actual] = runAll(pairOf("dspark"), [asked], { speculator: speculator({}) });
    expect(actual?.ids).toEqual([...run.tokens]);
    const text = [...run.prompt_ids, ...run.tokens];
    let at = run.prompt_ids.length + 1;
    let right = 0;
    for (const length of inner(actual?.stats?.acceptLengths ?? [])) {
      const proposal = new LookupIndex(LOOKUP_ALONE, text.slice(0, at)).propose();
      if (proposal?.tokens[0] === text[at]) {
        right++;
        expect({ at, length: Math.max(length, 2) }).toEqual({ at, length });
      }
      at += length;
    }
    expect(right).toBeGreaterThan(1);
  });
});

describe("padding ids", () => {
  const vocab = 488;
  /** Nearly every token is 12, and what stands behind the place that lookup finds then is padding: 12 beyond the end. */
  const promptIds = [7, 8, 9, 10, 12, vocab + 12, vocab + 12, vocab + 12, 7, 8, 9, 10];
  const bias = [[12, 7]] as const;

  test("are never drafted: in a law, their place is another row's", () => {
    const pair = pairOf("dspark");
    const seeds = [...Array(11).keys(), null];
    for (const policy of [speculator({}), speculator({ drafter: pair.drafter, lookup: true })]) {
      const asked = seeds.map((seed) => {
        const sampling = { ...GREEDY, temperature: 1, presencePenalty: -1, logitBias: bias };
        return request({
          promptIds,
          maxNewTokens: 30,
          sampling: { ...sampling, seed: seed === 0 ? String(seed) : null },
          topLogprobs: 0,
        });
      });
      for (const { ids } of runAll(pair, asked, { vocab, speculator: policy })) {
        expect(ids).toHaveLength(30);
        expect(Math.max(...ids)).toBeLessThan(vocab);
      }
    }
  });

  test("the same tokens come without drafts", () => {
    const pair = pairOf("dspark");
    const asked = ["1", "2", "3"].map((seed) =>
      request({ promptIds, maxNewTokens: 40, sampling: { ...GREEDY, temperature: 1.5, logitBias: bias, seed } }),
    );
    const plain = runAll(pair, asked, { vocab });
    const drafted = runAll(pair, asked, { vocab, speculator: speculator({}) });
    expect(drafted.map(({ ids }) => ids)).toEqual(plain.map(({ ids }) => ids));
  });
});

describe("given up", () => {
  test.each(["dspark", "lookup"] as const)("before any turn, beside others, without a trace: %s", (kind) => {
    const pair = pairOf("dspark");
    // Two chunks of prompt, then rounds.
    const promptIds = Array.from({ length: 150 }, (_, i) => CYCLE.prompt_ids[i % CYCLE.prompt_ids.length] ?? 0);
    const options = kind === "lookup" ? {} : { drafter: pair.drafter, cap: 3 };
    const [whole] = runAll(pair, [request({ promptIds, maxNewTokens: 40 })]);
    for (let turn = 0; turn < 22; turn++) {
      const { scheduler, posted, run } = harness(pair, { speculator: speculator(options) });
      const leaver = request({ promptIds, maxNewTokens: 40 });
      const stayer = request({ promptIds: CYCLE.prompt_ids, maxNewTokens: 50 });
      scheduler.submit(leaver);
      scheduler.submit(stayer);
      for (let i = 0; i < turn && scheduler.busy; i++) scheduler.turn();
      scheduler.cancel(leaver.id);
      run();
      const { ids, end } = told(posted, leaver.id);
      expect(ids).toEqual(whole?.ids.slice(0, ids.length) ?? []);
      expect(end === "cancelled" || ids.length === 40).toBe(true);
      expect(outcome(posted, stayer.id)).toEqual({ ids: CYCLE.tokens.slice(0, 50), end: "length" });
    }
  });
});

describe.each(["graph", "dispatch"] as const)("a round that fails (%s)", (kind: Breakage) => {
  test("ends its rows, and the next request goes well", () => {
    // Rows of the stock backend own arrays.
    const pair = pairOf("dspark", "stock");
    for (let nth = 1; nth <= 6; nth++) {
      const policy = speculator({ drafter: pair.drafter, lookup: true, confidenceThreshold: nth % 2 === 0 ? 0.4 : 0 });
      const { scheduler, watch, posted, run } = harness(pair, { speculator: policy });
      const rows = [0, 3].map((topLogprobs) =>
        request({ promptIds: CYCLE.prompt_ids, maxNewTokens: 60, topLogprobs, sampling: { ...GREEDY, seed: null } }),
      );
      let drafts = 0;
      watch.breaks = ({ total, rows: batched }) =>
        total > batched.length && batched.length === 2 && ++drafts === nth ? kind : null;
      for (const each of rows) scheduler.submit(each);
      run();
      for (const each of rows) {
        const { ids, end } = outcome(posted, each.id);
        expect(end).toBe("failed: internal");
        expect(ids).toEqual(CYCLE.tokens.slice(0, ids.length));
      }
      watch.breaks = () => null;
      const next = request({ promptIds: CYCLE.prompt_ids, maxNewTokens: 60 });
      scheduler.submit(next);
      run();
      expect(outcome(posted, next.id)).toEqual({ ids: [...CYCLE.tokens], end: "length" });
      expect(liveArrays()).toBe(before);
    }
  });
});

test("a wish for half a draft is refused before it can meet other rows", () => {
  const pair = pairOf("dspark");
  const policy = speculator({ drafter: pair.drafter });
  for (const speculation of [
    { mode: "pair", maxDraft: 2.5 },
    { mode: "pair", maxDraft: Number.NaN },
    { mode: "lookup", lookupLongDraft: 8.5 },
  ] as const) {
    const [refused] = runAll(pair, [request({ speculation })], { speculator: policy });
    expect(refused?.end).toContain("must be an integer");
  }
});

test("a row whose drafter has no room for it leaves nothing behind", () => {
  const pair = pairOf("dspark", "stock");
  const full: Drafter = Object.assign(Object.create(pair.drafter) as Drafter, {
    newSession: () => {
      throw new Error("no room");
    },
  });
  const sampling = { ...GREEDY, presencePenalty: 1 };
  const [refused] = runAll(pair, [request({ sampling })], { speculator: speculator({ drafter: full }) });
  expect(refused).toMatchObject({ ids: [], end: "no room" });
});
