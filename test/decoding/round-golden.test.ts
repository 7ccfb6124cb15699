/**
 * The golden loops, round by round: with the reference's policy of drafts (no self-extension, no gate on base drafts)
 * every round drafts, accepts and commits what the reference's did. The last round may be clipped there and here.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { kvStates } from "../../src/cache/state-factory.ts";
import type { PlannedDraft } from "../../src/decoding/draft-blocks.ts";
import { LongDraftGate } from "../../src/decoding/lookup-gate.ts";
import { LOOKUP_ALONE, LOOKUP_BESIDE_DRAFTER, LookupIndex } from "../../src/decoding/lookup-index.ts";
import { runRound } from "../../src/decoding/round.ts";
import { Row } from "../../src/decoding/row.ts";
import { RowDrafting } from "../../src/decoding/row-drafting.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { scheduleStep } from "../../src/decoding/step.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { type GoldenRoundLog, type LoopRun, loopRuns } from "../support/loop-golden.ts";
import { openTestMlx } from "../support/native.ts";
import { type Backend, loadGoldenPair, type Pair } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";

/** `--lookup-long-draft`. */
const LONG = 32;

const pairs = new Map<string, Pair>();
const BACKENDS = ["fused", "stock"] as const satisfies readonly Backend[];
beforeAll(() => {
  openTestMlx();
  for (const backend of BACKENDS) {
    for (const name of ["drafter_dspark", "drafter_dflash"])
      pairs.set(`${name} ${backend}`, loadGoldenPair(name, backend));
  }
});
afterAll(() => {
  for (const pair of pairs.values()) pair.dispose();
  expect(liveArrays()).toBe(0);
  expect(liveCpuObjects()).toBe(0);
});

function pairOf(run: string, backend: Backend): Pair {
  const pair = pairs.get(`drafter_${run.startsWith("dspark") ? "dspark" : "dflash"} ${backend}`);
  if (pair === undefined) throw new Error(`no pair for ${run}`);
  return pair;
}

/** The reference's choice of drafts. */
class ReferencePolicy {
  readonly index: LookupIndex | null;
  private readonly gate = new LongDraftGate();
  private readonly base: number;
  private readonly long: number;
  private readonly cap: number;

  constructor(
    private readonly run: LoopRun,
    maxDraft: number,
    alone: boolean,
  ) {
    const { max_draft_tokens: cap, lookup_drafts, lookup_long_draft, long_draft_tokens } = run.options;
    const kind = alone ? LOOKUP_ALONE : LOOKUP_BESIDE_DRAFTER;
    this.base = alone ? (cap ?? kind.maxDraft) : kind.maxDraft;
    this.long = long_draft_tokens ?? lookup_long_draft ?? LONG;
    this.cap = alone ? 0 : Math.min(cap ?? maxDraft, maxDraft);
    const options = { ...kind, maxDraft: this.base, selfExtension: false };
    this.index = alone || lookup_drafts === true ? new LookupIndex(options, run.prompt_ids) : null;
  }

  plan(limit: number): PlannedDraft {
    const found = limit < 1 ? null : this.index?.propose(this.gate.allowed ? this.long : null, limit);
    if (found) return { source: "lookup", tokens: found.tokens };
    const cap = Math.min(this.cap, limit);
    if (cap < 1) return { source: "plain" };
    return { source: "drafter", cap, confidenceThreshold: this.run.options.confidence_threshold ?? 0 };
  }

  settled(source: GoldenRoundLog[3], drafted: number, accepted: number, ids: readonly number[]): void {
    if (source === "lookup") this.gate.update(drafted, accepted, this.base);
    this.index?.extend(ids);
  }
}

/** Tokens and rounds of one row alone. */
function decode(name: string, run: LoopRun, backend: Backend): { tokens: number[]; rounds: GoldenRoundLog[] } {
  const { model, layout, drafter } = pairOf(name, backend);
  const alone = name.startsWith("lookup");
  const { prompt_ids: prompt, max_new_tokens: maxNew, eos } = run;
  const policy = new ReferencePolicy(run, drafter.maxDraft, alone);
  const capacity = prompt.length + maxNew;
  const session = alone ? null : drafter.newSession(capacity);
  const limits = { maxNew, eos: new Set(eos === null ? [] : [eos]), topLogprobs: null };
  const sampler = new Sampler(GREEDY, model.vocabSize, prompt);
  const states = model.newStates(kvStates(0, layout), capacity);
  const row = new Row(prompt, states, sampler, limits, new RowDrafting(null, session));
  const taps = alone ? [] : drafter.taps;
  scheduleStep(model, [{ row, kind: "prefill", count: prompt.length }], model.vocabSize, taps).settle();
  const tokens = [...row.tokens.slice(row.promptLength, row.tokens.length)];
  policy.settled("plain", 0, 0, tokens);
  const rounds: GoldenRoundLog[] = [];
  while (tokens.length < maxNew && !limits.eos.has(tokens.at(-1) ?? -1)) {
    const draft = policy.plan(maxNew - tokens.length - 1);
    const options = { drafter: alone ? null : drafter, vocab: model.vocabSize };
    const [settled] = runRound(model, [{ row, draft }], options).settled;
    if (settled === undefined) throw new Error("a round without rows");
    const { source, drafted, accepted, ids } = settled;
    if (source === "forced") throw new Error("nothing forces a free row");
    rounds.push([drafted, accepted, accepted + 1, source]);
    tokens.push(...ids);
    policy.settled(source, drafted, accepted, ids);
    expect(row.cached).toBe(row.tokens.length - 1 + (accepted + 1 - ids.length));
    for (const state of states) expect(state.length).toBe(row.cached);
    if (session !== null) expect(session.length).toBe(row.cached);
  }
  row.dispose();
  return { tokens, rounds };
}

describe.each([...BACKENDS])("the golden loops, %s", (backend) => {
  test.each([...loopRuns])("%s", (name, run) => {
    const { tokens, rounds } = decode(name, run, backend);
    expect(tokens).toEqual([...run.tokens]);
    const wanted = run.round_log_drafted_accepted_committed_source;
    expect(rounds).toHaveLength(wanted.length);
    expect(rounds.slice(0, -1)).toEqual(wanted.slice(0, -1).map(([...entry]) => entry));
    expect(wanted.map(([, , committed]) => committed).slice(0, -1)).toEqual(run.accept_lengths.slice(0, -1));
    expect(wanted.length).toBeGreaterThan(3);
    // Stopped by an EOS, the last round is not clipped either.
    if (run.eos !== null) expect(rounds.at(-1)).toEqual(wanted.at(-1) as [number, number, number, "drafter"]);
  });
});
