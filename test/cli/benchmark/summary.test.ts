/** The figures of a benchmark: medians, paired ratios, the row's mean, the split of a round. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type Arm, BASELINE } from "../../../src/cli/benchmark/arms.ts";
import type { Measured } from "../../../src/cli/benchmark/measure.ts";
import type { PromptName } from "../../../src/cli/benchmark/prompts.ts";
import { median, summarize } from "../../../src/cli/benchmark/summary.ts";
import { costSplit } from "../../../src/engine/cost-split.ts";
import type { RoundInfo } from "../../../src/engine/protocol.ts";

const ARM: Arm = { label: "dspark cap=2", mode: "dspark", speculation: { mode: "pair", maxDraft: 2 } };
const COSTS = {
  verify: { 1: 10, 3: 14, 5: 18 },
  drafter: { 1: 2, 2: 3 },
  overhead: 1,
  plain: 9,
  depth0: 512,
  depthSlope: null,
};

function round(source: RoundInfo["source"], drafted: number, accepted: number): RoundInfo {
  return { source, drafted, accepted, cap: 2, ms: 1 };
}

/** 10 prompt tokens in one second, then `rounds` in `decodeSeconds`. */
function run(decodeSeconds: number, rounds: readonly RoundInfo[]): Measured {
  const acceptLengths = rounds.map(({ accepted }) => accepted + 1);
  const tokens = acceptLengths.reduce((sum, length) => sum + length, 1);
  const total = (value: (one: RoundInfo) => number) => rounds.reduce((sum, one) => sum + value(one), 0);
  return {
    ids: new Array<number>(tokens).fill(1),
    logprobs: [],
    rounds,
    stats: {
      ...{ mode: "dspark", seed: "0", promptTokens: 10, cachedTokens: 0, completionTokens: tokens },
      ...{ rounds: rounds.length, acceptLengths, drafted: total((r) => r.drafted), accepted: total((r) => r.accepted) },
      ...{ lookupRounds: 0, parkedRounds: 0, targetForwards: rounds.length + 1, cap: 2, acceptance: null },
      ...{ decayRatio: null, queueSeconds: 0, prefillSeconds: 1, decodeSeconds, ttftSeconds: 1 },
    },
  };
}

const plain = (seconds: number) => run(seconds, new Array<RoundInfo>(19).fill(round("plain", 0, 0)));
const drafted = (seconds: number) =>
  run(seconds, [...new Array<RoundInfo>(9).fill(round("drafter", 2, 1)), round("drafter", 2, 0)]);

function runs(cells: Partial<Record<PromptName, readonly [readonly Measured[], readonly Measured[]]>>) {
  const of = (index: 0 | 1) =>
    new Map(Object.entries(cells).map(([name, pair]) => [name as PromptName, pair[index]] as const));
  return new Map([
    [BASELINE, of(0)],
    [ARM, of(1)],
  ]);
}

describe("figures", () => {
  test("medians over trials, speedups by pairs, spreads from end to end", () => {
    const [, arm] = summarize(
      runs({
        chat: [
          [plain(2), plain(4), plain(8)],
          [drafted(1), drafted(4), drafted(2)],
        ],
      }),
      null,
    );
    const chat = arm?.perPrompt.get("chat");
    expect(chat?.decodeTokensPerSecond).toBe(10);
    expect(chat?.tokensPerSecond).toBeCloseTo(20 / 3, 9);
    expect(chat?.spread).toEqual([4, 10]);
    expect(chat?.decodeSpeedup).toEqual([2, 1, 4]);
    expect(chat?.accept).toBeCloseTo(1.9, 9);
    expect(chat?.prefillTokensPerSecond).toBe(10);
    expect(chat?.acceptHistogram).toEqual({ 1: 3, 2: 27 });
    expect(chat).toMatchObject({ drafted: 60, accepted: 27, rounds: 30, tokens: 20 });
    expect(arm).toMatchObject({ split: null, efficiency: null });
  });

  test("the row is the mean of chat, code and math; copy stands for itself", () => {
    const cell = (seconds: number) => [[plain(10)], [drafted(seconds)]] as const;
    const [baseline, arm] = summarize(runs({ chat: cell(5), code: cell(4), math: cell(2), copy: cell(0.1) }), null);
    expect(baseline?.row.decodeTokensPerSecond).toBe(2);
    expect(arm?.row.decodeTokensPerSecond).toBeCloseTo((4 + 5 + 10) / 3, 9);
    expect(arm?.decodeSpeedup).toBeCloseTo((4 + 5 + 10) / 6, 9);
    const [, alone] = summarize(runs({ copy: cell(0.1) }), null);
    expect(alone?.row.decodeTokensPerSecond).toBe(200);
  });

  test("a loop without overhead gets all that its rounds promise", () => {
    // A plain step of 9 ms; rounds of 3 ms draft, 14 ms verify and 1 ms of their own.
    const cells = runs({ chat: [[plain(20 * 0.009)], [drafted(10 * 0.018)]] });
    const [, arm] = summarize(cells, COSTS);
    expect(arm?.split?.draft).toBeCloseTo(3, 9);
    expect(arm?.split?.verify).toBeCloseTo(14, 9);
    expect(arm?.split?.overhead).toBeCloseTo(1, 9);
    expect(arm?.split?.rest).toBeCloseTo(0, 9);
    expect(arm?.split?.plainSteps).toBeCloseTo(2, 9);
    expect(arm?.efficiency).toBeCloseTo((20 * 0.009) / (10 * 0.018) / (1.9 / 2), 9);
  });

  test("the median lies between, whatever the order", () => {
    fc.assert(
      fc.property(fc.array(fc.integer(), { minLength: 1 }), (values) => {
        const middle = median(values);
        const below = values.filter((value) => value < middle).length;
        const above = values.filter((value) => value > middle).length;
        expect(below).toBeLessThanOrEqual(values.length / 2);
        expect(above).toBeLessThanOrEqual(values.length / 2);
        expect(median([...values].reverse())).toBe(middle);
      }),
    );
  });
});

describe("cost split", () => {
  const of = (...rounds: RoundInfo[]) => [{ promptTokens: 10, rounds }];

  test("a plain step counts as one, a lookup round drafts for nothing", () => {
    const split = costSplit(COSTS, of(round("plain", 0, 0), round("lookup", 4, 4)), 0.04);
    expect(split).toEqual({
      ...{ measured: 20, draft: 0, verify: 13.5, overhead: 0.5, rest: 6 },
      plainSteps: (1 + 19 / 9) / 2,
    });
  });

  test("every round is priced at its own depth, in plain steps of the same", () => {
    const deep = { ...COSTS, depth0: 11, depthSlope: { 1: 1, 3: 2 } };
    // At 11 tokens 3 + 14 + 1 against 9; the second round is two tokens deeper.
    const split = costSplit(deep, of(round("drafter", 2, 1), round("drafter", 2, 2)), 0.04);
    expect(split?.verify).toBeCloseTo((14 + 18) / 2, 9);
    expect(split?.plainSteps).toBeCloseTo((18 / 9 + 22 / 11) / 2, 9);
  });

  test("no rounds, no split; no plain step, no ratio", () => {
    expect(costSplit(COSTS, [], 1)).toBeNull();
    expect(costSplit({ ...COSTS, plain: null }, of(round("drafter", 2, 2)), 1)?.plainSteps).toBeNull();
  });
});
