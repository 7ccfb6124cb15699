/**
 * The golden drafters: every tensor of drafters.md §9 at its tolerance over three rounds with scripted acceptance, the
 * drafts themselves, the same through 4-bit weights where there are vectors, and greedy decoding with the target.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { type BlockDrafter, Session } from "../../src/drafters/block-drafter.ts";
import { DFlash2Head } from "../../src/drafters/dflash2.ts";
import type { ProposalLaw } from "../../src/drafters/drafter.ts";
import { DSparkHead } from "../../src/drafters/dspark.ts";
import { loadDrafter } from "../../src/drafters/load.ts";
import { sampledWalk } from "../../src/drafters/selector.ts";
import {
  concatenate,
  dim,
  evaluate,
  float32Array,
  int32Array,
  liveArrays,
  type MlxArray,
  scope,
  toFloat32,
  toInt32,
} from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { argmax, slice, view } from "../../src/mlx/ops.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { fusedCompute } from "../../src/nn/fused/compute.ts";
import { type LayerState, StepBatch } from "../../src/nn/layer-state.ts";
import type { ComputeChoice } from "../../src/nn/select.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import {
  type DrafterCase,
  drafterCases,
  drafterRoot,
  drafterSource,
  type GoldenRound,
  readCase,
  readVectors,
  type Vector,
  worstExcess,
} from "../support/drafter-golden.ts";
import { openTestMlx } from "../support/native.ts";

interface Tolerance {
  readonly atol: number;
  readonly rtol: number;
}
/** manifest.json, "tolerances". */
const FLOAT32: Tolerance = { atol: 2e-4, rtol: 1e-4 };
const PACKED: Tolerance = { atol: 2e-3, rtol: 1e-3 };
const BFLOAT16: Tolerance = { atol: 0.15, rtol: 0.03 };

interface Backend extends Pick<ComputeChoice, "compute" | "dtype"> {
  readonly target: TargetModel;
}
const backends = new Map<string, Backend>();

const GREEDY: ProposalLaw = { kind: "greedy", vocab: 512, bias: null };
const cache = mkdtempSync(join(tmpdir(), "drafters-"));

beforeAll(() => {
  openTestMlx();
  const choices = [
    ["stock", { compute: stockCompute("float32"), dtype: "float32" }],
    ["fused", { compute: fusedCompute(), dtype: null }],
  ] as const;
  for (const [name, choice] of choices) {
    const { model: target } = loadTarget(join(drafterRoot, "target"), choice.compute, choice);
    backends.set(name, { ...choice, target });
  }
});
afterAll(() => {
  for (const { target } of backends.values()) target.dispose();
  rmSync(cache, { recursive: true });
  expect(liveArrays()).toBe(0);
  expect(liveCpuObjects()).toBe(0);
});

function backendOf(name: string): Backend {
  const backend = backends.get(name);
  if (backend === undefined) throw new Error(`no backend ${name}`);
  return backend;
}

function load(name: string, bits: 0 | 4, { compute, dtype, target }: Backend): BlockDrafter {
  const windowTokens = readCase(name).ctx_window ?? 0;
  return loadDrafter(drafterSource(name), target, { compute, dtype, bits, windowTokens, cacheRoot: cache });
}

/** Compares tensors by name; each must have a vector, and at the end every vector must have been compared. */
class Comparison {
  private readonly seen = new Set<string>();

  constructor(
    private readonly vectors: ReadonlyMap<string, Vector>,
    private readonly prefix: string,
    private readonly tolerance: Tolerance,
  ) {}

  input(name: string): MlxArray {
    const vector = this.vectors.get(name);
    if (vector === undefined) throw new Error(`no vector ${name}`);
    this.seen.add(name);
    return float32Array(vector.values, vector.shape);
  }

  has(name: string): boolean {
    return this.vectors.has(this.prefix + name);
  }

  check(name: string, x: MlxArray): void {
    const wanted = this.vectors.get(this.prefix + name);
    if (wanted === undefined) throw new Error(`no vector ${this.prefix}${name}`);
    this.seen.add(this.prefix + name);
    const { atol, rtol } = this.tolerance;
    const excess = worstExcess(toFloat32(x), wanted.values, rtol);
    expect({ name, off: excess <= atol ? 0 : excess }).toEqual({ name, off: 0 });
  }

  unchecked(): string[] {
    return [...this.vectors.keys()].filter(
      (name) => !this.seen.has(name) && name.startsWith("q4_") === (this.prefix === "q4_"),
    );
  }
}

/** One round's vectors through the drafter's parts, then the same drafts through its session. */
function checkRound(
  drafter: BlockDrafter,
  session: Session,
  golden: GoldenRound,
  round: number,
  compare: Comparison,
): void {
  const width = golden.block_ids.length;
  const anchor = int32Array([golden.pending]);
  const states = drafter.hidden([{ session, anchor }], width);
  const start = width - drafter.maxDraft;
  const rows = slice(states, [start, 0], [width, dim(states, 1)]);
  const logits = drafter.head.logits(rows);
  if (compare.has(`r${round}_block_hidden`)) compare.check(`r${round}_block_hidden`, states);
  else compare.check(`r${round}_hidden`, rows);
  if (drafter.head instanceof DSparkHead) {
    const walk = drafter.head.walk(logits, rows, anchor, GREEDY);
    if (compare.has(`r${round}_base_logits`)) compare.check(`r${round}_base_logits`, logits);
    compare.check(`r${round}_step_logits`, concatenate(walk.steps, 0));
    if (golden.draft_space_argmax !== undefined) {
      expect([...toInt32(argmax(concatenate(walk.steps, 0), -1))]).toEqual([...golden.draft_space_argmax]);
    }
    expect(walk.confidence !== null).toBe(compare.has(`r${round}_confidence_logits`));
    if (walk.confidence !== null) compare.check(`r${round}_confidence_logits`, walk.confidence);
  } else if (drafter.head instanceof DFlash2Head) {
    const { ids, scores } = drafter.head.scored(logits, rows, anchor, GREEDY);
    compare.check(`r${round}_candidates`, ids);
    compare.check(`r${round}_scores`, scores);
    const walk = sampledWalk(ids, scores, 0.8, compare.input(`r${round}_uniforms`));
    expect([...toInt32(walk.ids)]).toEqual([...(golden["sampled_draft_T0.8"] ?? [])]);
    if (walk.q === null) throw new Error("a sampled walk has a law");
    compare.check(`r${round}_sampled_q`, walk.q);
  } else if (compare.has(`r${round}_logits`)) {
    compare.check(`r${round}_logits`, logits);
  }
  const proposal = session.propose(anchor, drafter.maxDraft, GREEDY);
  expect([...toInt32(proposal.ids)]).toEqual([...golden.draft]);
  // A smaller cap gives the same drafts, only fewer.
  const fewer = session.propose(anchor, 2, GREEDY);
  expect([...toInt32(fewer.ids)]).toEqual(golden.draft.slice(0, 2));
}

/** The target's row that the scripted rounds verify on. */
class Verifier {
  private readonly states: LayerState[];
  private cached = 0;

  constructor(
    private readonly drafter: BlockDrafter,
    private readonly backend: Backend,
  ) {
    this.states = backend.target.newStates(kvStates(0, backend.compute.stateLayout), 512);
  }

  /** Feeds ids; the tapped rows of the first `kept` of them, and the logits of all. */
  feed(ids: readonly number[], kept: number): { taps: MlxArray; logits: MlxArray } {
    const batch = new StepBatch([{ states: this.states, count: ids.length, offset: this.cached }]);
    const { target } = this.backend;
    const { hidden, taps } = target.forward(int32Array(ids), batch, this.drafter.taps);
    if (taps === null) throw new Error("no taps");
    for (const state of this.states) state.trim(ids.length - kept);
    this.cached += kept;
    return { taps: slice(taps, [0, 0], [kept, dim(taps, 1)]), logits: target.logits(hidden) };
  }

  close(): void {
    for (const state of this.states) state.dispose();
  }
}

function checkRounds(name: string, bits: 0 | 4, tolerance: Tolerance, backend: Backend): void {
  const golden = readCase(name);
  const prefix = bits === 0 ? "" : "q4_";
  const vectors = readVectors(join(drafterRoot, name, "vectors.safetensors"));
  const compare = new Comparison(vectors, prefix, tolerance);
  const drafter = load(name, bits, backend);
  const session = drafter.newSession(4096);
  if (!(session instanceof Session)) throw new Error("another kind of session");
  const verifier = new Verifier(drafter, backend);
  scope(() => compare.check("fused_proj", drafter.backbone.fuse(compare.input("ctx_hidden"))));
  scope(() => {
    const { taps } = verifier.feed(golden.prompt_ids, golden.prompt_ids.length);
    if (bits === 0) compare.check("ctx_hidden", taps);
    session.committed(taps);
  });
  if (compare.has("ctx_k_layer0")) {
    scope(() => {
      const held = session.contexts[0]?.all();
      if (held === undefined || held === null) throw new Error("an empty context");
      compare.check("ctx_k_layer0", held.keys);
      compare.check("ctx_v_layer0", held.values);
    });
  }
  const rounds = (bits === 0 ? golden.rounds : golden.q4_rounds) ?? [];
  expect(rounds).toHaveLength(3);
  const last = session.contexts.at(-1);
  for (const [i, round] of rounds.entries()) {
    expect(session.length).toBe(round.n_cached ?? round.ctx_position_after ?? -1);
    if (round.ctx_rows_after_per_layer !== undefined) {
      expect(session.contexts.map((context) => context.held)).toEqual([...round.ctx_rows_after_per_layer]);
    }
    scope(() => checkRound(drafter, session, round, i, compare));
    // The reference appends DFlash's rows at the next draft: its last context lacks the last round's.
    if (i === 2 && golden.kind === "dflash") scope(() => compareLast(compare, last));
    scope(() => {
      const { taps, logits } = verifier.feed([round.pending, ...round.draft], round.accepted_forced + 1);
      expect([...toInt32(argmax(logits, -1))]).toEqual([...round.verify_argmax]);
      if (compare.has(`r${i}_verify_logits`)) compare.check(`r${i}_verify_logits`, logits);
      // The drafts of packed weights differ, and so do the rows behind them, for which there are no vectors.
      if (bits === 0) compare.check(`r${i}_ctx_hidden_new`, taps);
      session.committed(taps);
    });
    evaluate(session.arrays());
  }
  if (golden.kind !== "dflash") scope(() => compareLast(compare, last));
  expect(compare.unchecked()).toEqual([]);
  verifier.close();
  session.close();
  drafter.dispose();
}

function compareLast(compare: Comparison, context: Session["contexts"][number] | undefined): void {
  const held = context?.all();
  if (held === undefined || held === null) throw new Error("an empty context");
  compare.check("final_ctx_k_last_layer", held.keys);
}

/** Greedy decoding with drafts, as simple as can be: one round after the other. */
function speculate(
  drafter: BlockDrafter,
  golden: DrafterCase,
  { target, compute }: Backend,
): { tokens: number[]; lengths: number[] } {
  const { max_new_tokens: most } = golden.greedy;
  const states = target.newStates(kvStates(0, compute.stateLayout), 512);
  const session = drafter.newSession(512);
  const forward = (ids: MlxArray, count: number, offset: number) => {
    const { hidden, taps } = target.forward(ids, new StepBatch([{ states, count, offset }]), drafter.taps);
    if (taps === null) throw new Error("no taps");
    return { taps, best: argmax(target.logits(hidden), -1) };
  };
  let cached = golden.prompt_ids.length;
  const out = [
    scope(() => {
      const { taps, best } = forward(int32Array(golden.prompt_ids), cached, 0);
      session.committed(taps);
      return toInt32(best).at(-1) ?? -1;
    }),
  ];
  const lengths: number[] = [];
  while (out.length < most) {
    const committed = scope(() => {
      const anchor = int32Array([out.at(-1) ?? -1]);
      const { ids, count } = session.propose(anchor, drafter.maxDraft, GREEDY);
      const { taps, best } = forward(concatenate([anchor, view(ids, "int32")], 0), count + 1, cached);
      const [draft, wanted] = [toInt32(ids), toInt32(best)];
      let n = 0;
      while (n < count && draft[n] === wanted[n]) n++;
      session.committed(slice(taps, [0, 0], [n + 1, dim(taps, 1)]));
      for (const state of states) state.trim(count - n);
      return [...wanted.slice(0, n + 1)];
    });
    evaluate(session.arrays());
    cached += committed.length;
    out.push(...committed);
    lengths.push(committed.length);
    expect(session.length).toBe(cached);
  }
  session.close();
  for (const state of states) state.dispose();
  return { tokens: out.slice(0, most), lengths };
}

test("the drafter golden set is there", () => {
  expect(drafterCases.length).toBeGreaterThanOrEqual(10);
});

const runs = drafterCases.flatMap((name) => [[name, "stock"] as const, [name, "fused"] as const]);

describe.each(runs)("golden drafter %s, %s", (name, backend) => {
  const golden = readCase(name);

  test("three rounds", () => checkRounds(name, 0, golden.kind === "gguf" ? BFLOAT16 : FLOAT32, backendOf(backend)));

  test.skipIf(golden.q4_rounds === undefined)("three rounds in 4 bits (only where the set has them)", () =>
    checkRounds(name, 4, PACKED, backendOf(backend)),
  );

  test("greedy decoding with the target", () => {
    const drafter = load(name, 0, backendOf(backend));
    const { tokens, lengths } = speculate(drafter, golden, backendOf(backend));
    expect(tokens).toEqual([...golden.greedy.baseline]);
    // The last round of the reference may end beyond the limit.
    const wanted = golden.greedy.speculative.accept_lengths;
    expect(lengths.slice(0, -1)).toEqual(wanted.slice(0, -1));
    drafter.dispose();
  });
});
