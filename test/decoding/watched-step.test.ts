/** Watched steps: the guess is the drafter's, the tokens are those of steps that nobody watches. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { kvStates } from "../../src/cache/state-factory.ts";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { Row } from "../../src/decoding/row.ts";
import { RowDrafting } from "../../src/decoding/row-drafting.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { type InFlightStep, type SettledToken, scheduleStep } from "../../src/decoding/step.ts";
import { int32Array, liveArrays, scope, toInt32 } from "../../src/mlx/array.ts";
import { openTestMlx } from "../support/native.ts";
import { loadGoldenPair, type Pair, speculator } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";

setDefaultTimeout(120_000);
let pair: Pair;
beforeAll(() => {
  openTestMlx();
  pair = loadGoldenPair("dspark_native", "fused");
});
afterAll(() => {
  pair.dispose();
  expect(liveArrays()).toBe(0);
});

function newRow(prompt: readonly number[], temperature = 0): Row {
  const { model, layout, drafter } = pair;
  const sampler = new Sampler({ ...GREEDY, temperature }, model.vocabSize, prompt);
  const limits = { maxNew: 40, eos: new Set<number>(), topLogprobs: null };
  const drafting = new RowDrafting(null, drafter.newSession(200));
  return new Row(prompt, model.newStates(kvStates(0, layout), 200), sampler, limits, drafting);
}

/** Steps behind the prompt, each scheduled before the last is read when `pipelined`. */
function run(row: Row, watched: readonly boolean[], pipelined: boolean): SettledToken[] {
  const { model, drafter } = pair;
  const step = (kind: "prefill" | "decode", count: number, watch: boolean) =>
    scheduleStep(model, [{ row, kind, count, watched: watch }], model.vocabSize, drafter.taps);
  const out = step("prefill", row.promptLength, false).settle();
  let inFlight: InFlightStep | null = null;
  for (const watch of watched) {
    if (!pipelined) out.push(...(inFlight?.settle() ?? []));
    const next = step("decode", 1, watch);
    if (watch) expect(row.drafting?.watching).toBe(true);
    if (pipelined) out.push(...(inFlight?.settle() ?? []));
    inFlight = next;
  }
  out.push(...(inFlight?.settle() ?? []));
  return out;
}

test("the guess of a step is the draft behind what came before it", () => {
  const setting = fc.record({
    prompt: fc.array(fc.integer({ min: 0, max: 511 }), { minLength: 1, maxLength: 12 }),
    watched: fc.array(fc.boolean(), { minLength: 1, maxLength: 24 }),
    pipelined: fc.boolean(),
  });
  const seen = { right: 0, wrong: 0 };
  fc.assert(
    fc.property(setting, ({ prompt, watched: wishes, pipelined }) => {
      // As the policy has it: not while another one is in flight.
      const watched = wishes.map((wish, i) => wish && !(pipelined && wishes[i - 1]));
      const row = newRow(prompt);
      const plain = newRow(prompt);
      const tokens = run(row, watched, pipelined);
      const unwatched = run(
        plain,
        watched.map(() => false),
        pipelined,
      );
      expect(tokens.map(({ id }) => id)).toEqual(unwatched.map(({ id }) => id));
      expect(row.drafting?.watching).toBe(false);
      for (const [i, { foreseen }] of tokens.entries()) {
        if (i === 0 || !watched[i - 1]) expect(foreseen).toBeNull();
        else seen[foreseen === draftAt(prompt, tokens, i) ? "right" : "wrong"]++;
      }
      row.dispose();
      plain.dispose();
    }),
    { numRuns: 40 },
  );
  expect(seen.wrong).toBe(0);
  expect(seen.right).toBeGreaterThan(20);
});

/** Whether a session that was given everything before token `i` at once would have drafted it. */
function draftAt(prompt: readonly number[], tokens: readonly SettledToken[], i: number): boolean {
  const ids = tokens.map(({ id }) => id);
  const row = newRow([...prompt, ...ids.slice(0, i - 1)]);
  const { model, drafter } = pair;
  scheduleStep(model, [{ row, kind: "prefill", count: row.promptLength }], model.vocabSize, drafter.taps).settle();
  const guess = scope(() => {
    const law = { kind: "greedy", vocab: model.vocabSize, bias: null } as const;
    return toInt32(row.drafting?.session?.propose(int32Array([ids[i - 1] ?? 0]), 1, law).ids ?? int32Array([]))[0];
  });
  row.dispose();
  return guess === ids[i];
}

test("a parked controller has greedy rows watched, one step at a time; sampled rows are probed by drafts", () => {
  const dear = new CostCurves({ verify: { 1: 20, 2: 24, 3: 28 }, drafter: 10 });
  const controller = new CapController(dear, { maxCap: 2 });
  while (!(controller.parked && controller.cap === 1)) {
    const drafted = controller.cap;
    controller.update({ rows: [{ drafted, accepted: 0 }], ms: dear.roundMs(drafted), committed: 1 });
  }
  const policy = speculator({ drafter: pair.drafter, cap: controller });
  const [greedy, sampled] = [newRow([1, 2, 3]), newRow([1, 2, 3], 1)];
  expect(policy.plan(greedy)).toEqual({ source: "plain", watched: true });
  expect(policy.plan(sampled)).toMatchObject({ source: "drafter", cap: 1 });
  if (greedy.drafting !== null) greedy.drafting.watching = true;
  expect(policy.plan(greedy)).toEqual({ source: "plain", watched: false });
  // Settled without a hit: back to steps that nobody watches.
  policy.settledPlain([{ row: greedy, id: 5, foreseen: false }]);
  expect(controller.cap).toBe(0);
  expect(policy.plan(greedy)).toEqual({ source: "plain" });
  for (const row of [greedy, sampled]) row.dispose();
});
