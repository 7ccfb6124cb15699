/**
 * Losslessness in bulk: at least 10⁴ tokens per mode over all golden pairs, greedy and sampled with seeds, without one
 * token that differs from plain decoding (decoding.md §10).
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { Drafter } from "../../src/drafters/drafter.ts";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { randomFrom } from "../decoding/cap-traces.ts";
import { drafterCases, readCase } from "../support/drafter-golden.ts";
import { type LoopRun, loops } from "../support/loop-golden.ts";
import { openTestMlx } from "../support/native.ts";
import {
  type Backend,
  difference,
  loadGoldenPair,
  type Pair,
  runAll,
  speculator,
  type Told,
} from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { request } from "./tiny.ts";

setDefaultTimeout(120_000);
const TOKENS_PER_MODE = 10_000;
const LENGTH = 100;
/** Rows at a time with drafts. */
const BATCH = 16;

const cache = mkdtempSync(join(tmpdir(), "lossless-"));
const pairs = new Map<string, Pair>();
const kindOf = (name: string) => (name.includes("dflash") ? "dflash" : "dspark");

beforeAll(openTestMlx);
afterAll(() => {
  for (const pair of pairs.values()) pair.dispose();
  rmSync(cache, { recursive: true });
  expect(liveArrays()).toBe(0);
  expect(liveCpuObjects()).toBe(0);
});

function pairOf(name: string, backend: Backend): Pair {
  const key = `${name} ${backend}`;
  const pair = pairs.get(key) ?? loadGoldenPair(name, backend, cache);
  pairs.set(key, pair);
  return pair;
}

/** Prompts at random, the golden one or one that leads to the absorbing token among them; every sixteenth is sampled. */
function requestsFor(name: string, count: number): GenerateRequest[] {
  const random = randomFrom(name.length + count);
  const absorbed = (loops.runs.lookup_absorbing as LoopRun).prompt_ids;
  const golden = name.startsWith("drafter_") ? [] : [...readCase(name).prompt_ids];
  return Array.from({ length: count }, (_, i) => {
    const length = 3 + Math.floor(random() * 40);
    const ids = Array.from({ length }, () => Math.floor(random() * 500));
    const sampled = { ...GREEDY, temperature: 0.3, seed: String(i) };
    return request({
      promptIds:
        i === 0 && golden.length > 0 ? golden : name === "drafter_dflash" && i % 4 > 0 ? [...ids, ...absorbed] : ids,
      maxNewTokens: LENGTH,
      sampling: i % 16 === 2 ? sampled : GREEDY,
    });
  });
}

/** Drafts of middling cost: the controller goes up and down, and parks. */
function auto({ maxDraft }: Drafter): CapController {
  const curves = new CostCurves({ verify: { 1: 10, 9: 20 }, drafter: { 1: 1, 8: 3 } });
  return new CapController(curves, { maxCap: maxDraft });
}

interface Mode {
  /** Of the tokens: pairs whose drafts stand take more of them. */
  readonly shares: Readonly<Record<string, number>>;
  policy(pair: Pair, i: number): Speculator;
}

const ofKind = (kind: "dspark" | "dflash") => drafterCases.filter((name) => kindOf(name) === kind);
const evenly = (names: readonly string[], share: number) =>
  Object.fromEntries(names.map((name) => [name, share / names.length]));

const MODES: Readonly<Record<string, Mode>> = {
  dspark: {
    shares: { drafter_dspark: 0.75, ...evenly(ofKind("dspark"), 0.25) },
    policy: ({ drafter }, i) =>
      speculator({ drafter, cap: i % (drafter.maxDraft + 1), confidenceThreshold: i % 2 === 0 ? 0 : 0.1 * (i % 7) }),
  },
  dflash: {
    shares: { drafter_dflash: 0.8, ...evenly(ofKind("dflash"), 0.2) },
    policy: ({ drafter }, i) => speculator({ drafter, cap: [3, 0, 1, 6][i % 4] ?? 0 }),
  },
  auto: {
    shares: { drafter_dspark: 0.4, drafter_dflash: 0.3, ...evenly(drafterCases, 0.3) },
    policy: ({ drafter }) => speculator({ drafter, cap: auto(drafter), lookup: true }),
  },
  lookup: { shares: { drafter_dspark: 0.5, dspark_window: 0.5 }, policy: () => speculator({}) },
};

const plain = new Map<string, readonly Told[]>();

/** Without drafts, in other company: alone. */
function withoutDrafts(pair: Pair, asked: readonly GenerateRequest[], key: string): readonly Told[] {
  const known = plain.get(key) ?? runAll(pair, asked, { maxBatch: 1 });
  plain.set(key, known);
  return known;
}

/** Tokens and accepted drafts of a mode over its pairs, each compared with plain decoding. */
function compare({ shares, policy }: Mode, backend: Backend, wanted: number): { tokens: number; accepted: number } {
  let tokens = 0;
  let accepted = 0;
  for (const [i, [name, share]] of Object.entries(shares).entries()) {
    const pair = pairOf(name, backend);
    const asked = requestsFor(name, Math.ceil((wanted * share) / LENGTH));
    const expected = withoutDrafts(pair, asked, `${name} ${backend} ${asked.length}`);
    const actual = runAll(pair, asked, { maxBatch: BATCH, speculator: policy(pair, i) });
    for (const [at, { ids, stats }] of actual.entries()) {
      expect({ name, at, difference: difference(ids, expected[at]?.ids ?? []) }).toEqual({ name, at, difference: "" });
      tokens += ids.length;
      accepted += stats?.accepted ?? 0;
    }
  }
  return { tokens, accepted };
}

test.each(Object.entries(MODES))("%s", (_, mode) => {
  const { tokens, accepted } = compare(mode, "fused", TOKENS_PER_MODE);
  expect(tokens).toBeGreaterThanOrEqual(TOKENS_PER_MODE);
  expect(accepted).toBeGreaterThan(tokens / 100);
});

test("the other backend, whose products take other shapes by width", () => {
  const shares = { drafter_dspark: 0.5, dspark_window: 0.2, dspark_speculators_d2t: 0.1, dflash2: 0.2 };
  for (const { policy } of Object.values(MODES)) compare({ shares, policy }, "stock", TOKENS_PER_MODE / 80);
});
