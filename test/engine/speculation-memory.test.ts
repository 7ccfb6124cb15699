/**
 * Handles over thousands of rounds: as many after the two-thousandth as after the hundredth, whatever drafts. And deep in
 * a text, the drafter's context and the target's caches stay where they lie: a round copies none of them.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { ActiveRequest } from "../../src/engine/request.ts";
import { evaluate, liveArrays, type MlxArray } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { native } from "../../src/mlx/native.ts";
import { type LoopRun, loops } from "../support/loop-golden.ts";
import { openTestMlx } from "../support/native.ts";
import { type Backend, loadGoldenPair, type Pair, speculator } from "../support/pairs.ts";
import { harness, request } from "./tiny.ts";

setDefaultTimeout(120_000);
const ROUNDS = 2000;
/** On the stock backend, whose rows hold arrays: rounds take longer there. */
const STOCK_ROUNDS = 300;

const pairs = new Map<string, Pair>();
beforeAll(openTestMlx);
afterAll(() => {
  for (const pair of pairs.values()) pair.dispose();
  expect(liveArrays()).toBe(0);
  expect(liveCpuObjects()).toBe(0);
});

function pairOf(name: string, backend: Backend): Pair {
  const key = `${name} ${backend}`;
  const pair = pairs.get(key) ?? loadGoldenPair(name, backend);
  pairs.set(key, pair);
  return pair;
}

/** A prompt that never ends and never comes to rest: a cycle of 29 tokens. */
const { prompt_ids: promptIds } = loops.runs.dspark_cap7 as LoopRun;

interface Case {
  readonly backend: Backend;
  readonly name: string;
  /** Each round commits few tokens, so that the text stays short. */
  readonly policy: (pair: Pair) => Speculator;
  readonly source: "drafter" | "lookup";
  readonly rounds: number;
}

const byDrafter = ({ drafter }: Pair) => speculator({ drafter, cap: 1 });
const byLookup = () => speculator({ longDraft: 6 });
const CASES: readonly (readonly [string, Case])[] = [
  ["dspark", { backend: "fused", name: "drafter_dspark", source: "drafter", policy: byDrafter, rounds: ROUNDS }],
  ["dflash", { backend: "fused", name: "drafter_dflash", source: "drafter", policy: byDrafter, rounds: ROUNDS }],
  ["lookup", { backend: "fused", name: "drafter_dspark", source: "lookup", policy: byLookup, rounds: ROUNDS }],
  [
    "dspark, stock",
    { backend: "stock", name: "drafter_dspark", source: "drafter", policy: byDrafter, rounds: STOCK_ROUNDS },
  ],
];

test.each([...CASES])("%s: no handle is left over", (_, { backend, name, policy, source, rounds: wanted }) => {
  const pair = pairOf(name, backend);
  const { scheduler, posted } = harness(pair, { speculator: policy(pair), window: 20_000 });
  const asked = request({ promptIds, maxNewTokens: 19_000 });
  scheduler.submit(asked);
  let rounds = 0;
  const seen: number[] = [];
  while (rounds < wanted) {
    scheduler.turn();
    for (const message of posted.splice(0)) {
      if (message.type === "done" || message.type === "failed") throw new Error("the text is too short");
      if (message.type !== "tokens") continue;
      for (const { round } of message.batch) if (round?.source === source) rounds++;
    }
    if (rounds > 0 && rounds % 100 === 0) seen.push(liveArrays() + 1e6 * liveCpuObjects());
  }
  expect(seen.length).toBeGreaterThanOrEqual(wanted / 100);
  expect(new Set(seen).size).toBe(1);
  scheduler.cancel(asked.id);
  scheduler.turn();
});

const DEPTH = 1500;

test.each(["drafter_dspark", "drafter_dflash"])(
  "contexts and caches stay where they are, round by round: %s",
  (name) => {
    // On the fused backend they lie with the CPU primitives, whose own tests look at them.
    const pair = pairOf(name, "stock");
    const { scheduler, posted } = harness(pair, {
      speculator: speculator({ drafter: pair.drafter, cap: 3 }),
      window: 8000,
    });
    const deep = Array.from({ length: DEPTH }, (_, i) => promptIds[i % promptIds.length] ?? 0);
    const asked = request({ promptIds: deep, maxNewTokens: 100 });
    scheduler.submit(asked);
    while (posted.filter(({ type }) => type === "tokens").length < 4) scheduler.turn();
    const { active } = scheduler as unknown as { active: readonly ActiveRequest[] };
    const row = active[0]?.row;
    if (!row?.drafting?.session) throw new Error("no session");
    const { session } = row.drafting;
    expect(session.length).toBeGreaterThan(DEPTH);
    const places = () => [...session.arrays(), ...row.states.flatMap((state) => state.arrays())].map(addressOf).join();
    let moves = 0;
    for (let i = 0; i < 8; i++) {
      const before = places();
      scheduler.turn();
      if (places() !== before) moves++;
    }
    // A buffer that grows moves once.
    expect(moves).toBeLessThanOrEqual(1);
    scheduler.cancel(asked.id);
    scheduler.turn();
  },
);

/** Where the values lie. */
function addressOf(x: MlxArray): number {
  evaluate([x]);
  return Number(native.mlx_array_data_uint8(x));
}
