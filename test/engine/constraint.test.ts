/**
 * Rows with a grammar through the scheduler: the tokens of masked plain decoding, whatever drafts and neighbours there
 * are (structured-output.md §5, §8). The grammars are automata over ids; the reference masks on the host and shares
 * nothing with the loop.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { kvStates } from "../../src/cache/state-factory.ts";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { ConstraintError } from "../../src/decoding/constraint.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { GenerateRequest, SamplingParams } from "../../src/engine/protocol.ts";
import { firstInt, float32Array, int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { slice } from "../../src/mlx/ops.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import {
  type Automaton,
  AutomatonCompiler,
  type AutomatonOptions,
  randomAutomaton,
  specOf,
} from "../support/automaton.ts";
import { type LoopRun, loops } from "../support/loop-golden.ts";
import { openTestMlx } from "../support/native.ts";
import { difference, loadGoldenPair, type Pair, runAll, speculator, told } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { checkStats } from "../support/spec-stats.ts";
import { harness, outcome, request, type Tiny } from "./tiny.ts";

setDefaultTimeout(120_000);
const NAMES = ["drafter_dspark", "drafter_dflash", "dflash2"] as const;
const EOS = [3, 11];
const pairs = new Map<string, Pair>();
let before = 0;
beforeAll(() => {
  openTestMlx();
  for (const name of NAMES) {
    const pair = loadGoldenPair(name, "fused");
    // The first forwards make the tables of the rotation.
    runAll(pair, [request()], { speculator: speculator({ drafter: pair.drafter }) });
    pairs.set(name, pair);
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

const CYCLE = loops.runs.dspark_cap7 as LoopRun;
const prompt = CYCLE.prompt_ids;
const COMMON = [...new Set(CYCLE.tokens)].filter((id) => !EOS.includes(id));

function pairOf(name: (typeof NAMES)[number]): Pair {
  const pair = pairs.get(name);
  if (pair === undefined) throw new Error(name);
  return pair;
}

function automataFor({ model }: Tiny, count: number, options: Partial<AutomatonOptions> = {}): AutomatonCompiler {
  const automata: Record<string, Automaton> = {};
  for (let i = 0; i < count; i++) automata[`g${i}`] = randomAutomaton(100 + i, model.vocabSize, COMMON);
  return new AutomatonCompiler({ automata, vocab: model.vocabSize, ...options });
}

/** Masked plain decoding, one token a forward, masks and argmax on the host. */
function reference({ model, layout }: Tiny, asked: GenerateRequest, automaton: Automaton) {
  const states = model.newStates(kvStates(0, layout), 512);
  const sampler = new Sampler(asked.sampling, model.vocabSize, asked.promptIds);
  const ids: number[] = [];
  let state = 0;
  let input = Array.from(asked.promptIds);
  let offset = 0;
  let end = "length";
  while (ids.length < asked.maxNewTokens) {
    const logits = scope(() => {
      const { hidden } = model.forward(int32Array(input), new StepBatch([{ states, count: input.length, offset }]));
      return toFloat32(model.logits(slice(hidden, [input.length - 1, 0], [input.length, model.hiddenSize])));
    });
    for (let id = 0; id < logits.length; id++) {
      const legal = asked.eosIds.includes(id) ? automaton.accepting(state) : automaton.legal(state, id);
      if (!legal) logits[id] = Number.NEGATIVE_INFINITY;
    }
    if (logits.every((value) => value === Number.NEGATIVE_INFINITY)) {
      end = "no legal token";
      break;
    }
    const id = scope(() => firstInt(sampler.choose(float32Array(logits, [1, logits.length]), ids.length)));
    offset += input.length;
    input = [id];
    ids.push(id);
    if (asked.eosIds.includes(id)) {
      end = "stop";
      break;
    }
    state = automaton.next(state, id);
  }
  for (const each of states) each.dispose();
  sampler.dispose();
  return { ids, end };
}

const references = new Map<string, ReturnType<typeof reference>>();

function known(key: string, pair: Pair, asked: GenerateRequest, automata: AutomatonOptions["automata"]) {
  const found = references.get(key) ?? reference(pair, asked, automata[asked.constraint?.ebnf ?? ""] as Automaton);
  references.set(key, found);
  return found;
}

const COSTS = new CostCurves({ verify: { 1: 10, 9: 10.5 }, drafter: 0.1 });
/** Each with the sources that it must have met over all requests. */
const POLICIES: Readonly<Record<string, { of(pair: Pair): Speculator | null; forced: boolean }>> = {
  plain: { of: () => null, forced: false },
  forced: { of: () => speculator({ lookup: false }), forced: true },
  lookup: { of: () => speculator({}), forced: false },
  drafter: { of: ({ drafter }) => speculator({ drafter }), forced: false },
  "drafter, cut by confidence": {
    of: ({ drafter }) => speculator({ drafter, confidenceThreshold: 0.5 }),
    forced: false,
  },
  everything: {
    of: ({ drafter }) =>
      speculator({ drafter, lookup: true, cap: new CapController(COSTS, { maxCap: drafter.maxDraft }), curves: COSTS }),
    forced: true,
  },
};

const SAMPLINGS: Readonly<Record<string, SamplingParams>> = {
  greedy: GREEDY,
  penalized: { ...GREEDY, presencePenalty: 1.2, logitBias: [[5, 2]] },
  seeded: { ...GREEDY, temperature: 0.8, topP: 0.95, topK: 40, seed: "7" },
};

describe.each([...NAMES])("the tokens of masked plain decoding, %s", (name) => {
  test.each(Object.entries(POLICIES))("%s", (_, { of, forced }) => {
    const pair = pairOf(name);
    const count = 6;
    let [accepted, cut, masked, forcedTokens, stops] = [0, 0, 0, 0, 0];
    for (const [label, sampling] of Object.entries(SAMPLINGS)) {
      const grammars = automataFor(pair, count, { forced });
      const { automata } = grammars.options;
      const bound = Object.keys(automata).map((grammar) =>
        request({ promptIds: prompt, maxNewTokens: 40, eosIds: EOS, sampling, constraint: specOf(grammar) }),
      );
      const free = [0, 1].map((i) => request({ promptIds: prompt.slice(i), maxNewTokens: 30, sampling }));
      const wanted = new Map(
        bound.map((each) => [each.id, known(`${name} ${label} ${each.constraint?.ebnf}`, pair, each, automata)]),
      );
      const [first, second] = runAll(pair, free, { maxBatch: 1 });
      for (const maxBatch of [1, 4]) {
        const policy = of(pair);
        const mixed = [free[0], ...bound.slice(0, 3), free[1], ...bound.slice(3)].flatMap((each) => each ?? []);
        const results = runAll(pair, mixed, { maxBatch, grammars, ...(policy !== null && { speculator: policy }) });
        for (const [i, actual] of results.entries()) {
          const asked = mixed[i] as GenerateRequest;
          const expected = wanted.get(asked.id) ?? (asked === free[0] ? first : second);
          const said = { i, maxBatch, end: actual.end, difference: difference(actual.ids, expected?.ids ?? []) };
          expect(said).toEqual({ i, maxBatch, end: expected?.end ?? "", difference: "" });
          checkStats(actual, asked);
          const { grammar } = actual.stats ?? {};
          expect(grammar !== undefined).toBe(wanted.has(asked.id));
          if (grammar === undefined) continue;
          accepted += actual.stats?.accepted ?? 0;
          cut += grammar.cutDrafts;
          masked += grammar.maskedRows;
          forcedTokens += grammar.forcedTokens;
          stops += Number(actual.end === "stop");
        }
      }
      expect([grammars.rowsOpen, grammars.pinned]).toEqual([0, 0]);
    }
    expect(masked).toBeGreaterThan(500);
    expect(stops).toBeGreaterThan(3);
    // The other drafter is a stranger to its target.
    if (of(pair) !== null && name !== "dflash2") {
      expect(accepted).toBeGreaterThan(0);
      expect(cut).toBeGreaterThan(0);
    }
    expect(forcedTokens > 0).toBe(forced);
  });
});

/** Runs one request whose grammar is the automaton `g`. */
function bound(part: Partial<GenerateRequest> = {}, grammar = "g0"): GenerateRequest {
  return request({ promptIds: prompt, maxNewTokens: 30, eosIds: EOS, constraint: specOf(grammar), ...part });
}

describe("ends", () => {
  const allOf = ({ model }: Tiny) => ({
    legal: (_: number, id: number) => id < model.vocabSize,
    next: (state: number) => state + 1,
    forced: () => [],
  });

  test("an EOS comes when the grammar can end, not before, and at once when nothing else may follow", () => {
    const pair = pairOf("drafter_dspark");
    const { drafter } = pair;
    for (const last of [0, 1, 7]) {
      const g: Automaton = {
        ...allOf(pair),
        legal: (state, id) => state < last && id < pair.model.vocabSize,
        accepting: (state) => state === last,
      };
      for (const policy of [null, speculator({}), speculator({ drafter, lookup: true })]) {
        const grammars = new AutomatonCompiler({ automata: { g }, vocab: pair.model.vocabSize });
        // The model's favourite tokens are ends, too, so that it would end at every place.
        const eosIds = [...EOS, ...COMMON.slice(0, 4)];
        const [actual] = runAll(pair, [bound({ eosIds }, "g")], {
          grammars,
          ...(policy !== null && { speculator: policy }),
        });
        expect(actual?.end).toBe("stop");
        expect(actual?.ids).toHaveLength(last + 1);
        expect(eosIds).toContain(actual?.ids.at(-1) ?? -1);
        for (const id of actual?.ids.slice(0, -1) ?? []) expect(eosIds).not.toContain(id);
      }
    }
  });

  test("the limit in the middle of a text is an end like any other", () => {
    const pair = pairOf("drafter_dspark");
    const g: Automaton = { ...allOf(pair), accepting: () => false };
    const grammars = new AutomatonCompiler({ automata: { g }, vocab: pair.model.vocabSize });
    for (let maxNewTokens = 1; maxNewTokens <= 9; maxNewTokens++) {
      const policy = speculator({ drafter: pair.drafter, lookup: true });
      const [actual] = runAll(pair, [bound({ maxNewTokens }, "g")], { grammars, speculator: policy });
      expect(actual).toMatchObject({ ids: CYCLE.tokens.slice(0, maxNewTokens), end: "length" });
    }
  });

  test("forced drafts keep to the limit, and what they bring is counted", () => {
    const pair = pairOf("drafter_dspark");
    const text = Array.from({ length: 60 }, (_, i) => 20 + i);
    const g: Automaton = {
      legal: (state, id) => id === text[state],
      next: (state) => state + 1,
      accepting: (state) => state === text.length,
      forced: (state) => text.slice(state),
    };
    const grammars = new AutomatonCompiler({ automata: { g }, vocab: pair.model.vocabSize });
    const options = { grammars, speculator: speculator({}) };
    const [short, long] = [10, 100].map((maxNewTokens) => runAll(pair, [bound({ maxNewTokens }, "g")], options)[0]);
    expect(short).toMatchObject({ ids: text.slice(0, 10), end: "length" });
    expect(short?.stats).toMatchObject({ rounds: 1, accepted: 8 });
    expect(long?.ids.slice(0, -1)).toEqual(text);
    // 1 from the prompt, 32 + 1, 26 + 1, and the end.
    expect(long?.stats).toMatchObject({ acceptLengths: [33, 27] });
    expect(long?.stats?.grammar?.forcedTokens).toBe(58);
  });

  test("log-probabilities are those of the raw logits", () => {
    const pair = pairOf("drafter_dspark");
    const grammars = automataFor(pair, 1);
    const asked = bound({ topLogprobs: 2 });
    const [actual] = runAll(pair, [asked], { grammars, speculator: speculator({ drafter: pair.drafter }) });
    const ids = actual?.ids ?? [];
    const states = pair.model.newStates(kvStates(0, pair.layout), 512);
    const all = [...prompt, ...ids];
    const logits = scope(() =>
      toFloat32(
        pair.model.logits(
          pair.model.forward(int32Array(all), new StepBatch([{ states, count: all.length, offset: 0 }])).hidden,
        ),
      ),
    );
    for (const state of states) state.dispose();
    const width = pair.model.vocabSize;
    let below = 0;
    for (const [i, entry] of (actual?.logprobs ?? []).entries()) {
      const row = logits.subarray((prompt.length + i - 1) * width, (prompt.length + i) * width);
      const mass = Math.log(row.reduce((sum, x) => sum + Math.exp(x), 0));
      expect(entry.logprob).toBeCloseTo((row[entry.id] ?? 0) - mass, 3);
      expect(entry.top[0]?.[1]).toBeCloseTo(Math.max(...row) - mass, 3);
      if (entry.id !== entry.top[0]?.[0]) below++;
    }
    expect(actual?.logprobs).toHaveLength(ids.length);
    expect(below).toBeGreaterThan(0);
  });
});

describe("compilation", () => {
  test("a request waits for its grammar, the others pass it", () => {
    const pair = pairOf("drafter_dspark");
    const grammars = automataFor(pair, 2, { slow: ["g0"] });
    const { scheduler, posted, run } = harness(pair, { grammars, maxBatch: 1 });
    const [slow, fast, free] = [bound(), bound({}, "g1"), request({ maxNewTokens: 60 })];
    for (const each of [slow, fast, free]) scheduler.submit(each);
    while (scheduler.activeRows > 0 || scheduler.queuedRows > 1) scheduler.turn();
    expect(outcome(posted, fast.id).end).not.toBeNull();
    expect(outcome(posted, free.id).end).toBe("length");
    expect(outcome(posted, slow.id)).toEqual({ ids: [], end: null });
    // Nothing to do: the thread may rest.
    expect(scheduler.busy).toBe(false);
    grammars.release("g0", null, true);
    expect(scheduler.busy).toBe(true);
    run();
    expect(outcome(posted, slow.id)).toEqual(reference(pair, slow, grammars.options.automata.g0 as Automaton));
    expect([grammars.rowsOpen, grammars.pinned]).toEqual([0, 0]);
  });

  test("a busy engine looks for grammars between turns, an idle one is woken", () => {
    const pair = pairOf("drafter_dspark");
    const grammars = automataFor(pair, 1, { slow: ["g0"] });
    let woken = 0;
    const { scheduler, posted, run } = harness(pair, { grammars, wake: () => woken++ });
    const [slow, free] = [bound(), request({ maxNewTokens: 30 })];
    scheduler.submit(free);
    scheduler.submit(slow);
    for (let i = 0; i < 5; i++) scheduler.turn();
    grammars.release("g0");
    expect(scheduler.queuedRows).toBe(1);
    scheduler.turn();
    expect(scheduler.queuedRows).toBe(0);
    expect(woken).toBe(1);
    run();
    expect(outcome(posted, slow.id).end).not.toBeNull();
    const polls = grammars.polls;
    scheduler.submit(request());
    run();
    expect(grammars.polls).toBe(polls);
  });

  test("a refused grammar ends its request alone, with the reason", () => {
    const pair = pairOf("drafter_dspark");
    const grammars = automataFor(pair, 2, { slow: ["g0"] });
    const { scheduler, posted, run } = harness(pair, { grammars });
    const [refused, unknown, healthy] = [bound(), bound({}, "nowhere"), bound({}, "g1")];
    for (const each of [refused, unknown, healthy]) scheduler.submit(each);
    scheduler.turn();
    grammars.release("g0", new ConstraintError("invalid_request", "/properties/a: what?"));
    run();
    expect(told(posted, refused.id).end).toBe("/properties/a: what?");
    expect(outcome(posted, refused.id).end).toBe("failed: invalid_request");
    expect(told(posted, unknown.id).end).toBe("no grammar nowhere");
    expect(outcome(posted, healthy.id)).toEqual(reference(pair, healthy, grammars.options.automata.g1 as Automaton));
    expect([scheduler.busy, scheduler.queuedRows]).toEqual([false, 0]);
  });

  test("given up while it compiles; aborted; refused at a shutdown: nothing is left behind", () => {
    const pair = pairOf("drafter_dspark");
    const grammars = automataFor(pair, 1, { slow: ["g0"] });
    const { scheduler, posted, run } = harness(pair, { grammars });
    const ends = [
      (id: string) => scheduler.cancel(id),
      () => scheduler.abort({ kind: "not_ready", message: "gone" }),
      () => scheduler.refuseWaiting({ kind: "shutdown", message: "bye" }),
    ].map((leave) => {
      const asked = bound();
      scheduler.submit(asked);
      expect(grammars.compiling).toBe(1);
      leave(asked.id);
      run();
      expect(grammars.compiling).toBe(0);
      return outcome(posted, asked.id).end;
    });
    expect(ends).toEqual(["cancelled", "failed: not_ready", "failed: shutdown"]);
    expect([grammars.rowsOpen, grammars.pinned]).toEqual([0, 0]);
  });

  test("cancelled behind its compilation, and in the middle of its text", () => {
    const pair = pairOf("drafter_dspark");
    const grammars = automataFor(pair, 1);
    const { scheduler, posted, run } = harness(pair, { grammars, maxBatch: 1 });
    const [running, waiting] = [bound({ maxNewTokens: 400 }), bound()];
    for (const each of [running, waiting]) scheduler.submit(each);
    for (let i = 0; i < 4; i++) scheduler.turn();
    expect(grammars.pinned).toBe(1);
    scheduler.cancel(waiting.id);
    scheduler.cancel(running.id);
    run();
    for (const each of [running, waiting]) expect(outcome(posted, each.id).end).toBe("cancelled");
    expect([grammars.rowsOpen, grammars.pinned]).toEqual([0, 0]);
  });

  test("a grammar needs an end, and an engine for grammars", () => {
    const pair = pairOf("drafter_dspark");
    const [endless] = runAll(pair, [bound({ eosIds: [] })], { grammars: automataFor(pair, 1) });
    expect(endless?.end).toContain("do not ignore the end of sequence");
    const [without, free] = runAll(pair, [bound(), request()]);
    expect(without?.end).toBe("this model cannot follow a grammar");
    expect(free?.end).toBe("length");
  });
});

describe("dead ends", () => {
  /**
   * Behind a third of the tokens nothing may follow, behind the others nearly all: what is drafted is legal, and leads to
   * dead ends where the text does not. What the model likes ends in one of two automata only.
   */
  function withDeadEnds(seed: number): Automaton {
    const chance = (...of: readonly number[]) => Bun.hash.xxHash32(Int32Array.of(seed, ...of)) % 1000;
    const dead = (state: number) => {
      const rare = seed % 2 === 0 || !COMMON.includes(state - 1);
      return state > 0 && chance(state, 0) < (rare ? 333 : 0);
    };
    return {
      legal: (state, id) => !dead(state) && chance(state, id, 1) < 900,
      next: (_, id) => id + 1,
      accepting: (state) => !dead(state) && chance(state, 2) < 50,
      forced: (state) => (chance(state, 3) < 300 ? COMMON.slice(state % COMMON.length) : []),
    };
  }

  test.each(Object.entries(POLICIES))(
    "a row fails where plain decoding does, and there alone: %s",
    (label, { of, forced }) => {
      const pair = pairOf("drafter_dspark");
      const vocab = pair.model.vocabSize;
      const automata = Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`d${i}`, withDeadEnds(300 + i)]));
      const grammars = new AutomatonCompiler({ automata, vocab, forced, deadEnds: true });
      let met = 0;
      grammars.spoil = (_, words) => {
        const width = Math.ceil(vocab / 32);
        for (let at = width; at < words.length; at += width) {
          if (words.subarray(at, at + width).every((word) => word === 0)) met++;
        }
      };
      let stuck = 0;
      for (const [name, sampling] of Object.entries(SAMPLINGS)) {
        const asked = Object.keys(automata).map((grammar) => bound({ sampling, topLogprobs: 1 }, grammar));
        const policy = of(pair);
        const results = runAll(pair, asked, { maxBatch: 4, grammars, ...(policy !== null && { speculator: policy }) });
        for (const [i, { ids, end, logprobs }] of results.entries()) {
          const each = asked[i] as GenerateRequest;
          expect({ ids, end }).toEqual(known(`dead ${name} ${each.constraint?.ebnf}`, pair, each, automata));
          expect(logprobs).toHaveLength(ids.length);
          if (end === "no legal token") stuck++;
        }
      }
      expect(stuck).toBeGreaterThan(10);
      // A row comes to one dead end at most: the other drafts that led to one were not its text.
      if (label.startsWith("drafter")) expect(met).toBeGreaterThan(2 * stuck);
      expect([grammars.rowsOpen, grammars.pinned]).toEqual([0, 0]);
    },
  );
});

describe("a grammar that fails", () => {
  const rowsOf = () => [bound(), bound({}, "g1"), request({ promptIds: prompt, maxNewTokens: 20 })];
  const sick = (message: string) => new ConstraintError("internal", message);

  /** Breaks the row of `g0` after some of its tokens; the others must not notice. */
  function breaking(policy: Speculator | undefined, breaks: (grammars: AutomatonCompiler) => void): string[] {
    const pair = pairOf("drafter_dspark");
    const grammars = automataFor(pair, 2);
    breaks(grammars);
    const asked = rowsOf();
    const results = runAll(pair, asked, { grammars, ...(policy && { speculator: policy }) });
    const { g0, g1 } = grammars.options.automata;
    const wanted = reference(pair, asked[0] as GenerateRequest, g0 as Automaton).ids;
    expect(results[0]?.ids ?? []).toEqual(wanted.slice(0, results[0]?.ids.length ?? 0));
    expect(results[1]).toMatchObject(reference(pair, asked[1] as GenerateRequest, g1 as Automaton));
    expect(results[2]).toMatchObject({ ids: CYCLE.tokens.slice(0, 20), end: "length" });
    expect([grammars.rowsOpen, grammars.pinned]).toEqual([0, 0]);
    return results.map(({ end }) => end);
  }

  const policies = {
    plain: () => undefined,
    drafter: () => speculator({ drafter: pairOf("drafter_dspark").drafter, lookup: true }),
  };
  const cases = Object.entries(policies).flatMap(([name, policy]) =>
    [0, 1, 5].map((after) => [name, after, policy] as const),
  );

  test.each(cases)("when it is asked, %s, after %d tokens", (_, after, policy) => {
    const [end] = breaking(policy(), (grammars) => {
      grammars.asked = ({ name, committed }) => {
        if (name === "g0" && committed.length >= after) throw sick("grammar engine failed");
      };
    });
    expect(end).toBe("grammar engine failed");
  });

  test.each(cases)("when its masks are read, %s, after %d tokens", (_, after, policy) => {
    const [end] = breaking(policy(), (grammars) => {
      grammars.spoil = ({ name, committed }) => {
        if (name === "g0" && committed.length >= after) throw sick("grammar engine failed");
      };
    });
    expect(end).toBe("grammar engine failed");
  });

  test.each(cases)("when nothing is legal, %s, after %d tokens", (_, after, policy) => {
    const [end] = breaking(policy(), (grammars) => {
      grammars.spoil = ({ name, committed }, words) => {
        if (name === "g0" && committed.length >= after) words.fill(0);
      };
    });
    expect(end).toBe("no legal token");
  });

  test("when it is told of a token, and when it is asked what must follow", () => {
    for (const method of ["commit", "forced"] as const) {
      const [end] = breaking(speculator({}), (grammars) => {
        const open = grammars.open.bind(grammars);
        grammars.open = (compiled, limits) => {
          const row = open(compiled, limits) as ReturnType<typeof open> & { readonly name: string };
          if (row.name !== "g0") return row;
          let left = 3;
          const original = row[method].bind(row) as (ids: readonly number[]) => never;
          return Object.assign(row, {
            [method]: (ids: readonly number[]) => {
              if (--left < 0) throw sick("lost");
              return original(ids);
            },
          });
        };
      });
      expect(end).toBe("lost");
    }
  });

  test("before its row is there", () => {
    const [end] = breaking(undefined, (grammars) => {
      const open = grammars.open.bind(grammars);
      grammars.open = (compiled, limits) => {
        if ((compiled as unknown as { name: string }).name === "g0") throw sick("no room");
        return open(compiled, limits);
      };
    });
    expect(end).toBe("no room");
  });
});

describe("behind thoughts", () => {
  /** Closers of the golden text, at several places of it; and one that never comes by itself. */
  const closers = [4, 9, 15, 22].map((at) => CYCLE.tokens[at] ?? -1);
  const never = Array.from({ length: 400 }, (_, id) => id + 20).find((id) => !CYCLE.tokens.includes(id)) ?? -1;

  test("free text up to the closer, the grammar behind it: the same tokens with any drafts, across the closer", () => {
    const pair = pairOf("drafter_dspark");
    let crossed = 0;
    for (const inside of [true, false]) {
      const asked = [...closers, never].flatMap((closerId, i) =>
        [GREEDY, { ...GREEDY, temperature: 0.4, seed: "5" }].map((sampling) => {
          const opener = inside ? null : (CYCLE.tokens[0] ?? -1);
          const start = { kind: "after_reasoning", inside, openerId: opener, closerId } as const;
          const constraint = specOf(`g${i}`, { start });
          return request({ promptIds: prompt, maxNewTokens: 110, eosIds: EOS, sampling, constraint });
        }),
      );
      const grammars = automataFor(pair, 5);
      const plain = runAll(pair, asked, { grammars, maxBatch: 1 });
      for (const [i, { ids }] of plain.entries()) {
        const { start, ebnf = "" } = asked[i]?.constraint ?? {};
        const closerId = start?.kind === "after_reasoning" ? start.closerId : -1;
        const thinks = inside || ids[0] === CYCLE.tokens[0];
        const closed = thinks ? ids.indexOf(closerId) : -1;
        // Thoughts end at the latest where the answer must begin.
        if (thinks) expect(closed >= 0 && closed <= 110 - 64).toBe(true);
        const automaton = grammars.options.automata[ebnf] as Automaton;
        let state = 0;
        for (const id of ids.slice(closed + 1)) {
          expect(EOS.includes(id) ? automaton.accepting(state) : automaton.legal(state, id)).toBe(true);
          state = automaton.next(state, id);
        }
      }
      for (const { of } of Object.values(POLICIES)) {
        const policy = of(pair);
        if (policy === null) continue;
        const { scheduler, posted, run } = harness(pair, { grammars, speculator: policy, maxQueue: asked.length });
        for (const each of asked) scheduler.submit(each);
        run();
        for (const [i, each] of asked.entries()) {
          expect(difference(told(posted, each.id).ids, plain[i]?.ids ?? [])).toBe("");
          const { start } = each.constraint ?? {};
          for (const message of posted) {
            if (message.type !== "tokens" || start?.kind !== "after_reasoning") continue;
            const at = message.batch.find(({ id }) => id === each.id)?.ids.indexOf(start.closerId) ?? -1;
            const own = message.batch.find(({ id }) => id === each.id)?.ids.length ?? 0;
            if (at > 0 && at < own - 1) crossed++;
          }
        }
      }
    }
    expect(crossed).toBeGreaterThan(5);
  });
});

test("handles stay flat over many rounds of every source", () => {
  const pair = pairOf("drafter_dspark");
  const grammars = automataFor(pair, 8);
  const policy = speculator({ drafter: pair.drafter, lookup: true });
  const { scheduler, run } = harness(pair, { grammars, speculator: policy, maxQueue: 100 });
  for (let i = 0; i < 60; i++) {
    const sampling = i % 3 === 0 ? GREEDY : { ...GREEDY, temperature: 1, seed: i % 3 === 1 ? String(i) : null };
    scheduler.submit(bound({ sampling, topLogprobs: i % 5 === 0 ? 1 : null }, `g${i % 8}`));
  }
  run();
  expect(liveArrays()).toBe(before);
  expect([grammars.rowsOpen, grammars.pinned]).toEqual([0, 0]);
});
