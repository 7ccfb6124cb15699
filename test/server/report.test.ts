/** The `x_mlx_dspark` block: formulas, rounding, which keys appear when (http-openai.md §3). */
import { expect, test } from "bun:test";
import type { RequestStats } from "../../src/engine/protocol.ts";
import { reportBlock } from "../../src/server/generation/report.ts";

const STATS: RequestStats = {
  mode: "baseline",
  seed: "1",
  promptTokens: 40,
  cachedTokens: 24,
  completionTokens: 30,
  rounds: 30,
  drafted: 0,
  accepted: 0,
  acceptLengths: [],
  parkedRounds: 0,
  lookupRounds: 0,
  targetForwards: 30,
  cap: null,
  acceptance: null,
  decayRatio: null,
  queueSeconds: 0.12345,
  prefillSeconds: 0.5,
  decodeSeconds: 1.5,
  ttftSeconds: 0.51239,
};

function block(stats: readonly Partial<RequestStats>[], usage = { promptTokens: 40, cachedTokens: 24 }) {
  const finished = stats.map((change, choice) => ({
    choice,
    completionTokens: 30,
    reasoningTokens: 10,
    stats: { ...STATS, ...change },
  }));
  const counts = { completionTokens: 30 * stats.length, reasoningTokens: 10 * stats.length };
  return reportBlock("0000abcd", { ...usage, ...counts }, finished);
}

test("one plain row", () => {
  expect(block([{}])).toEqual({
    mode: "baseline",
    req: "0000abcd",
    accept_len: 1,
    tokens_per_sec: 15,
    decode_tokens_per_sec: 20,
    target_forwards: 30,
    prompt_tokens: 40,
    cached_tokens: 24,
    completion_tokens: 30,
    context_tokens: 70,
    prefill_seconds: 0.5,
    decode_seconds: 1.5,
    ttft_seconds: 0.512,
    queue_seconds: 0.123,
    prefill_tokens_per_sec: 32,
  });
});

test("speculation shows as tokens per round, with its drafts, its cap and where they came from", () => {
  const acceptLengths = [7, 1, 1, 7, 3, 1, 1, 1, 3, 1, 1, 1, 1];
  const speculative: Partial<RequestStats> = {
    ...{ mode: "lookup" as const, targetForwards: 14, rounds: 13, acceptLengths, cap: 6 },
    ...{ lookupRounds: 4, parkedRounds: 9, drafted: 24, accepted: 16, decayRatio: 0.98765 },
  };
  expect(block([speculative])).toMatchObject({
    mode: "lookup",
    accept_len: 2.231,
    rounds: 13,
    drafted: 24,
    accepted: 16,
    accept_histogram: { 1: 9, 3: 2, 7: 2 },
    parked_rounds: 9,
    lookup_rounds: 4,
    cap: 6,
    target_forwards: 14,
    decay_ratio: 0.9877,
  });
});

test("a forward wasted by a cut does not count against the row", () => {
  const acceptLengths = new Array<number>(29).fill(1);
  expect(block([{ targetForwards: 32, acceptLengths }]).accept_len).toBe(1);
});

test("rows side by side: tokens add up, seconds do not", () => {
  const both = block([{}, { prefillSeconds: 0.25, decodeSeconds: 2.5 }]);
  expect(both).toMatchObject({
    tokens_per_sec: 20,
    decode_tokens_per_sec: 24,
    prefill_seconds: 0.5,
    decode_seconds: 2.5,
  });
});

test("no prefill rate from fewer than 16 fresh tokens, no division by zero", () => {
  expect(block([{}], { promptTokens: 39, cachedTokens: 24 })).not.toHaveProperty("prefill_tokens_per_sec");
  const instant = block([{ prefillSeconds: 0, decodeSeconds: 0, targetForwards: 0 }]);
  expect(instant).toMatchObject({ tokens_per_sec: 0, decode_tokens_per_sec: 0, accept_len: 1 });
});
