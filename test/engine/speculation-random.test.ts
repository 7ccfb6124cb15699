/**
 * Random traffic through a drafting scheduler: every request gets what it would get alone and without drafts (ids, end,
 * log-probabilities), whatever drafts, caps, cuts, grammars, neighbours, arrivals and departures there are; states, contexts and
 * statistics agree after every turn.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { CapController } from "../../src/decoding/cap-controller.ts";
import type { ConstraintStart } from "../../src/decoding/constraint.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import type { Drafter } from "../../src/drafters/drafter.ts";
import type { GenerateRequest, RequestSpeculation, SamplingParams } from "../../src/engine/protocol.ts";
import type { ActiveRequest } from "../../src/engine/request.ts";
import type { Scheduler } from "../../src/engine/scheduler.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { AutomatonCompiler, randomAutomaton, specOf } from "../support/automaton.ts";
import { openTestMlx } from "../support/native.ts";
import { type Backend, difference, loadGoldenPair, runAll, speculator, type Told, told } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { checkStats } from "../support/spec-stats.ts";
import { harness, request, serial, type Tiny, tinyModel } from "./tiny.ts";

setDefaultTimeout(240_000);
/** Golden pairs, and targets without a drafter, by what is special about them. */
const NAMES = [
  "drafter_dspark fused",
  "drafter_dspark stock",
  "drafter_dflash fused",
  "dflash2 fused",
  "dspark_speculators_d2t fused",
  "dspark_window stock",
  "llama-swa-f32 fused",
  "llama-swa-f32 stock",
  "llama-q4g32-f32 fused",
] as const;
const KV_BITS = new Map<string, 8>([["llama-q4g32-f32 fused", 8]]);

interface Contender extends Tiny {
  readonly drafter: Drafter | null;
}
const models = new Map<string, Contender>();
const cache = mkdtempSync(join(tmpdir(), "speculation-"));

beforeAll(() => {
  openTestMlx();
  for (const each of NAMES) {
    const [name = "", backend] = each.split(" ") as [string, Backend];
    const model = name.startsWith("llama")
      ? { ...tinyModel(name, backend), drafter: null }
      : loadGoldenPair(name, backend, cache);
    // The first forwards make the tables of the rotation.
    serial(model, request());
    if (model.drafter !== null) runAll(model, [request()], { speculator: speculator({ drafter: model.drafter }) });
    models.set(each, model);
  }
});
afterAll(() => {
  for (const model of models.values()) model.dispose();
  rmSync(cache, { recursive: true });
  expect(liveArrays()).toBe(0);
  expect(liveCpuObjects()).toBe(0);
});

/** Ms of verify by rows and of a draft: drafts that nearly always pay, that pay now and then, that never do. */
const COSTS = {
  cheap: new CostCurves({ verify: { 1: 10, 9: 10.5 }, drafter: 0.1 }),
  middling: new CostCurves({ verify: { 1: 10, 9: 30 }, drafter: { 1: 2, 8: 4 } }),
  dear: new CostCurves({ verify: { 1: 10, 9: 90 }, drafter: 20 }),
} as const;

const sampling: fc.Arbitrary<SamplingParams> = fc.oneof(
  { weight: 3, arbitrary: fc.constant(GREEDY) },
  {
    weight: 3,
    arbitrary: fc.record({
      temperature: fc.constantFrom(0, 0.25, 1.1),
      topP: fc.constantFrom(1, 0.9),
      topK: fc.constantFrom(0, 20),
      minP: fc.constantFrom(0, 0.05),
      presencePenalty: fc.constantFrom(0, 1.5, -0.5),
      frequencyPenalty: fc.constantFrom(0, 0.5),
      repetitionPenalty: fc.constantFrom(1, 1.3),
      logitBias: fc.constantFrom<SamplingParams["logitBias"]>([], [[5, 3]], [[487, -4]]),
      seed: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }).map(String),
    }),
  },
);

const GRAMMARS = ["g0", "g1", "g2", "g3"] as const;
const AT_ONCE: ConstraintStart = { kind: "at_once" };
const thinking = (closerId: number): ConstraintStart => ({
  kind: "after_reasoning",
  inside: closerId % 2 === 0,
  openerId: 17,
  closerId,
});

interface Visitor {
  readonly asked: GenerateRequest;
  readonly arrives: number;
  /** Turns from its arrival until it is cancelled; null: it stays. */
  readonly leavesAfter: number | null;
}

/** Texts that repeat themselves, so that lookup has something to find. */
const prompt = fc.oneof(
  fc.array(fc.nat(287), { minLength: 1, maxLength: 12 }),
  fc
    .tuple(fc.array(fc.nat(287), { minLength: 1, maxLength: 5 }), fc.integer({ min: 2, max: 5 }))
    .map(([part, times]) => Array.from({ length: times }, () => part).flat()),
  fc.array(fc.nat(287), { minLength: 120, maxLength: 280 }),
);

/** Mostly as the pair was loaded; else a way of its own beside the others. */
const speculation: fc.Arbitrary<RequestSpeculation | undefined> = fc.oneof(
  { weight: 3, arbitrary: fc.constant(undefined) },
  { weight: 1, arbitrary: fc.constantFrom({ mode: "lookup" } as const, { mode: "baseline" } as const) },
  {
    weight: 2,
    arbitrary: fc.record({
      mode: fc.constant("pair" as const),
      maxDraft: fc.constantFrom("auto" as const, 0, 1, 4),
      lookupDrafts: fc.boolean(),
      confidenceThreshold: fc.constantFrom(0, 0.5),
    }),
  },
);

const visitor: fc.Arbitrary<Visitor> = fc.record({
  arrives: fc.nat(20),
  leavesAfter: fc.oneof({ weight: 3, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: fc.nat(12) }),
  asked: fc
    .record({
      promptIds: prompt,
      maxNewTokens: fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 5, max: 40 })),
      eosIds: fc.oneof(fc.constant([]), fc.uniqueArray(fc.nat(287), { maxLength: 30 })),
      sampling,
      topLogprobs: fc.constantFrom(null, null, 0, 3),
      priority: fc.constantFrom(0 as const, 1 as const),
      speculation,
      grammar: fc.constantFrom(null, null, null, null, ...GRAMMARS),
      thoughts: fc.constantFrom(null, null, 40, 41),
    })
    .map(({ speculation: wish, grammar, thoughts, eosIds, ...part }) => {
      const start = thoughts === null ? AT_ONCE : thinking(thoughts);
      return request({
        ...part,
        // A grammar needs an end.
        eosIds: grammar === null || eosIds.length > 0 ? eosIds : [7],
        constraint: grammar === null ? null : specOf(grammar, { start }),
        ...(wish !== undefined && { speculation: wish }),
      });
    }),
});

/** One grammar engine for each vocabulary. */
const engines = new Map<number, AutomatonCompiler>();
function grammarsFor(vocab: number): AutomatonCompiler {
  const automata = Object.fromEntries(GRAMMARS.map((name, seed) => [name, randomAutomaton(seed, vocab)]));
  const engine = engines.get(vocab) ?? new AutomatonCompiler({ automata, vocab });
  engines.set(vocab, engine);
  return engine;
}

const WINDOW = 296;
const traffic = fc.record({
  model: fc.constantFrom(...NAMES),
  maxBatch: fc.integer({ min: 1, max: 4 }),
  cap: fc.constantFrom("cheap", "middling", "dear", 0, 1, 2, 3, 5),
  lookup: fc.boolean(),
  priced: fc.boolean(),
  longDraft: fc.constantFrom(6, 32, 100),
  confidenceThreshold: fc.constantFrom(0, 0, 0.4, 0.9),
  /** Ids at the end of the head that are padding. */
  padding: fc.constantFrom(0, 0, 9),
  visitors: fc.array(visitor, { minLength: 1, maxLength: 7 }),
});

/** I1, I2, and the drafter's context beside them. */
function checkInvariants(scheduler: Scheduler, maxBatch: number): void {
  const { active } = scheduler as unknown as { active: readonly ActiveRequest[] };
  expect(active.length).toBeLessThanOrEqual(maxBatch);
  for (const { row } of active) {
    if (row === null) throw new Error("an active request without a row");
    const known = row.tokens.length + (row.pending === null ? 0 : 1);
    expect(row.cached).toBe(row.inPrefill ? row.cached : known - 1);
    for (const state of row.states) expect(state.length).toBe(row.cached);
    const session = row.drafting?.session;
    if (session) expect(session.length).toBe(row.cached);
  }
}

function expectSame(actual: Told, expected: Told): void {
  expect(difference(actual.ids, expected.ids)).toBe("");
  expect(actual.end).toBe(expected.end);
  expectLogprobs(actual, expected);
}

/** Those of a forward of other width: the same up to rounding. */
function expectLogprobs(actual: Told, expected: Told): void {
  expect(actual.logprobs.length).toBe(expected.logprobs.length === 0 ? 0 : actual.ids.length);
  for (const [i, { id, logprob, top }] of actual.logprobs.entries()) {
    const wanted = expected.logprobs[i];
    expect(id).toBe(wanted?.id ?? -1);
    expect(Math.abs(logprob - (wanted?.logprob ?? Number.NaN))).toBeLessThan(1e-4);
    expect(top.map(([token]) => token)).toEqual((wanted?.top ?? []).map(([token]) => token));
    for (const [at, [, value]] of top.entries()) {
      expect(Math.abs(value - (wanted?.top[at]?.[1] ?? Number.NaN))).toBeLessThan(1e-4);
    }
  }
}

test("each request gets what it would get alone and without drafts", () => {
  const seen = { drafter: 0, lookup: 0, parked: 0, masked: 0 };
  fc.assert(
    fc.property(traffic, ({ model: name, maxBatch, visitors, padding, cap, priced, ...options }) => {
      const inner = models.get(name);
      if (inner === undefined) throw new Error(name);
      const { drafter } = inner;
      const costs = cap === "cheap" || cap === "dear" ? COSTS[cap] : COSTS.middling;
      const chosen = speculator({
        ...options,
        drafter,
        lookup: options.lookup || drafter === null,
        cap: typeof cap === "number" || drafter === null ? Number(cap) || 0 : controller(costs, drafter),
        curves: priced ? costs : null,
      });
      const common = {
        vocab: inner.model.vocabSize - padding,
        grammars: grammarsFor(inner.model.vocabSize - padding),
        window: WINDOW,
        kvBits: KV_BITS.get(name) ?? (0 as const),
      };
      const before = liveArrays();
      const { scheduler, posted } = harness(inner, { ...common, maxBatch, speculator: chosen });
      const due = new Set(visitors);
      const leaving = new Map<Visitor, number>();
      for (let turn = 0; due.size > 0 || scheduler.busy; turn++) {
        if (turn > 2000) throw new Error("the scheduler does not come to an end");
        for (const each of due) {
          if (each.arrives > turn) continue;
          scheduler.submit(each.asked);
          due.delete(each);
          if (each.leavesAfter !== null) leaving.set(each, turn + each.leavesAfter);
        }
        for (const [each, at] of leaving) if (at === turn) scheduler.cancel(each.asked.id);
        if (scheduler.busy) scheduler.turn();
        checkInvariants(scheduler, maxBatch);
      }
      expect(liveArrays()).toBe(before);
      expect([common.grammars.rowsOpen, common.grammars.pinned]).toEqual([0, 0]);
      const wanted = runAll(
        inner,
        visitors.map(({ asked }) => ({ ...asked, speculation: { mode: "baseline" } })),
        { ...common, maxBatch: 1 },
      );
      for (const [i, { asked, leavesAfter }] of visitors.entries()) {
        const actual = told(posted, asked.id);
        const expected = wanted[i] as Told;
        if (actual.end === "cancelled") {
          expect(leavesAfter).not.toBeNull();
          expect(difference(actual.ids, expected.ids.slice(0, actual.ids.length))).toBe("");
          expectLogprobs(actual, expected);
        } else expectSame(actual, expected);
        checkStats(actual, asked);
        seen.drafter += (actual.stats?.drafted ?? 0) > 0 ? 1 : 0;
        seen.lookup += actual.stats?.lookupRounds ?? 0;
        seen.parked += actual.stats?.parkedRounds ?? 0;
        seen.masked += actual.stats?.grammar?.maskedRows ?? 0;
      }
    }),
    { numRuns: 80, includeErrorInReport: true },
  );
  // The traffic has met what it is to meet.
  expect(Math.min(seen.drafter, seen.lookup, seen.parked, seen.masked)).toBeGreaterThan(10);
});

function controller(costs: CostCurves, { maxDraft }: Drafter): CapController {
  return new CapController(costs, { maxCap: maxDraft });
}
