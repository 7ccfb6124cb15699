/**
 * Markov heads, log-SNR features and NVFP4 against the vectors of `golden/drafters/policy/sampling`, and the vocabulary
 * of a reduced head.
 */
import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { decodeNvfp4 } from "../../src/checkpoint/nvfp4-decode.ts";
import { ConfidenceHead } from "../../src/drafters/confidence.ts";
import { logSnrFeatures } from "../../src/drafters/log-snr.ts";
import { MarkovHead } from "../../src/drafters/markov.ts";
import { DraftVocabulary, withinTable } from "../../src/drafters/vocabulary.ts";
import {
  concatenate,
  float32Array,
  free,
  int32Array,
  keep,
  liveArrays,
  type MlxArray,
  NONE,
  scope,
  toFloat32,
  toInt32,
  uint32Array,
} from "../../src/mlx/array.ts";
import { cpuThreads, setCpuThreads } from "../../src/mlx/cpu.ts";
import { add, argmax, slice, view } from "../../src/mlx/ops.ts";
import { fusedCompute } from "../../src/nn/fused/compute.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import type { LinearWeights } from "../../src/nn/weights.ts";
import { drafterRoot, readVectors, worstExcess } from "../support/drafter-golden.ts";
import { openTestMlx } from "../support/native.ts";

const stock = stockCompute("float32");
const policy = join(drafterRoot, "policy");
const vectors = readVectors(join(policy, "sampling.safetensors"));
const golden = JSON.parse(readFileSync(join(policy, "sampling.json"), "utf8")) as Readonly<
  Record<"markov_gated" | "markov_rnn", { readonly anchor: number; readonly draft: readonly number[] }>
>;

function vector(name: string): { shape: readonly number[]; values: Float32Array } {
  const found = vectors.get(name);
  if (found === undefined) throw new Error(`no vector ${name}`);
  return found;
}

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

function array(name: string): MlxArray {
  const { values, shape } = vector(name);
  return float32Array(values, shape);
}

function linear(weight: string, bias: string | null): LinearWeights {
  const [outFeatures = 0, inFeatures = 0] = vector(weight).shape;
  return scope(() => ({
    matrix: { kind: "plain", weight: keep(array(weight)) },
    bias: bias === null ? NONE : keep(array(bias)),
    inFeatures,
    outFeatures,
  }));
}

function markovHead(type: "vanilla" | "gated" | "rnn"): MarkovHead {
  const joint = { vanilla: null, gated: "markov_gate", rnn: "markov_joint" }[type];
  return new MarkovHead({
    before: stock.embedding(linear("markov_w1", null).matrix),
    after: stock.linear(linear("markov_w2", null)),
    joint: joint === null ? null : stock.linear(linear(`${joint}_w`, `${joint}_b`)),
    type,
    rank: vector("markov_w1").shape[1] ?? 0,
    greedy: null,
  });
}

/** A greedy walk: logits of all steps and the ids. */
function walk(head: MarkovHead, anchor: number): { steps: Float32Array; ids: number[] } {
  return scope(() => {
    const [base, hidden, chain] = [array("markov_base"), array("markov_hidden"), head.chain()];
    const [count = 0, width = 0] = vector("markov_base").shape;
    const size = vector("markov_hidden").shape[1] ?? 0;
    const steps: MlxArray[] = [];
    let before = int32Array([anchor]);
    const ids: number[] = [];
    for (let i = 0; i < count; i++) {
      const row = (x: MlxArray, columns: number) => slice(x, [i, 0], [i + 1, columns]);
      const step = chain.step(row(base, width), row(hidden, size), head.features(before));
      before = view(argmax(step, -1), "int32");
      steps.push(step);
      ids.push(...toInt32(before));
    }
    return { steps: toFloat32(concatenate(steps, 0)), ids };
  });
}

describe.each(["gated", "rnn"] as const)("the %s Markov head", (type) => {
  test("steps and draft", () => {
    const { anchor, draft } = golden[`markov_${type}`];
    const head = markovHead(type);
    const { steps, ids } = walk(head, anchor);
    expect(worstExcess(steps, vector(`markov_${type}_steps`).values, 1e-4)).toBeLessThanOrEqual(2e-4);
    expect(ids).toEqual([...draft]);
    // Two chains share nothing: a second walk is the first again.
    expect(walk(head, anchor).ids).toEqual([...draft]);
    head.dispose();
  });
});

test("the plain Markov head adds W2 · W1[before]", () => {
  const head = markovHead("vanilla");
  const { steps } = walk(head, 3);
  const [w1, w2, base] = [vector("markov_w1").values, vector("markov_w2").values, vector("markov_base").values];
  for (let id = 0; id < 16; id++) {
    let sum = base[id] ?? 0;
    for (let r = 0; r < 4; r++) sum += (w1[3 * 4 + r] ?? 0) * (w2[id * 4 + r] ?? 0);
    expect(steps[id] ?? Number.NaN).toBeCloseTo(sum, 4);
  }
  head.dispose();
});

test("log-SNR features", () => {
  const { values, shape } = vector("log_snr_features_7");
  const features = logSnrFeatures(shape[0] ?? 0);
  expect(worstExcess(features, values, 1e-4)).toBeLessThanOrEqual(2e-4);
});

test("NVFP4", () => {
  const bytes = (name: string) => Uint8Array.from(vector(name).values);
  const scale2 = vector("nvfp4_scale_2").values[0] ?? 0;
  const halves = decodeNvfp4(bytes("nvfp4_weight"), bytes("nvfp4_scale"), scale2);
  const floats = new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
  expect([...floats]).toEqual([...vector("nvfp4_dequantized").values]);
});

test("a confidence head reads the Markov features only when it was made for them", () => {
  scope(() => {
    const hidden = float32Array([1, 2, 3, 4], [2, 2]);
    const features = float32Array([10, 20], [2, 1]);
    const made = (weights: readonly number[], reads: boolean) =>
      new ConfidenceHead(
        stock.linear({
          matrix: { kind: "plain", weight: keep(float32Array(weights, [1, weights.length])) },
          bias: keep(float32Array([0.5])),
          inFeatures: weights.length,
          outFeatures: 1,
        }),
        reads,
      );
    const both = made([1, 1, 1], true);
    const own = made([1, 1], false);
    expect([...toFloat32(both.logits(hidden, features))]).toEqual([13.5, 27.5]);
    expect([...toFloat32(own.logits(hidden, features))]).toEqual([3.5, 7.5]);
    expect([...toFloat32(own.logits(hidden, null))]).toEqual([3.5, 7.5]);
    both.dispose();
    own.dispose();
  });
});

describe("the plain Markov walk as one op", () => {
  const matrix = (rows: number, rank: number, seed: number, levels: number): LinearWeights => {
    let state = seed;
    // Few levels make equal sums, of which the first must win.
    const values = Float32Array.from({ length: rows * rank }, () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return Math.round((state / 2147483648 - 1) * levels) / levels;
    });
    return scope(() => {
      const weight = keep(float32Array(values, [rows, rank]));
      return { matrix: { kind: "plain", weight }, bias: NONE, inFeatures: rank, outFeatures: rows };
    });
  };

  test("ids and features are those of single steps, to the bit", () => {
    const threads = cpuThreads();
    const fused = fusedCompute();
    const setting = fc.record({
      known: fc.integer({ min: 1, max: 40 }),
      columns: fc.integer({ min: 1, max: 3000 }),
      cut: fc.nat(20),
      rank: fc.integer({ min: 1, max: 20 }),
      count: fc.integer({ min: 1, max: 6 }),
      anchor: fc.integer({ min: 0, max: 60 }),
      levels: fc.constantFrom(1, 3, 1e6),
      threads: fc.constantFrom(1, 2),
      seed: fc.integer({ min: 1, max: 1e6 }),
    });
    fc.assert(
      fc.property(setting, ({ known, columns, cut, rank, count, anchor, levels, threads, seed }) => {
        setCpuThreads(threads);
        const width = Math.max(1, columns - cut);
        const before = fused.embedding(matrix(known, rank, seed, levels).matrix);
        const after = fused.linear(matrix(columns, rank, seed + 1, levels));
        const base = matrix(count, columns, seed + 2, levels).matrix;
        const walk = fused.greedyWalk(before, after);
        if (walk === null || base.kind !== "plain") throw new Error("the fused backend walks");
        const { weight } = base;
        scope(() => {
          const found = walk(weight, int32Array([anchor]), width);
          const ids: number[] = [];
          const features: MlxArray[] = [];
          let id = anchor;
          for (let i = 0; i < count; i++) {
            const row = before.lookup(withinTable(int32Array([id]), known, 1e9));
            const step = add(slice(weight, [i, 0], [i + 1, columns]), after.apply(row));
            id = toInt32(argmax(slice(step, [0, 0], [1, width]), -1))[0] ?? -1;
            ids.push(id);
            features.push(row);
          }
          expect([...toInt32(found.ids)]).toEqual(ids);
          expect(toFloat32(found.features)).toEqual(toFloat32(concatenate(features, 0)));
        });
        before.dispose();
        after.dispose();
        free(weight);
      }),
      { numRuns: 100 },
    );
    setCpuThreads(threads);
  });

  test("widths that a matrix does not have, and other blocks, are refused", () => {
    const fused = fusedCompute();
    const before = fused.embedding(matrix(4, 2, 1, 3).matrix);
    const after = fused.linear(matrix(5, 2, 2, 3));
    const other = fused.linear(matrix(5, 3, 2, 3));
    const foreign = stock.linear(matrix(5, 2, 2, 3));
    const walk = fused.greedyWalk(before, after);
    scope(() => {
      const base = float32Array(new Float32Array(8), [1, 8]);
      const anchor = int32Array([0]);
      expect(() => walk?.(base, anchor, 6)).toThrow("the matrix has 5");
      expect(() => walk?.(base, anchor, 0)).toThrow("base has shape");
      expect(() => walk?.(base, int32Array([1, 2]), 5)).toThrow("the anchor");
      expect(() => fused.greedyWalk(before, other)?.(base, anchor, 5)).toThrow("different ranks");
      expect(fused.greedyWalk(before, foreign)).toBeNull();
      // Nothing but NaN still names an id.
      expect([...toInt32(walk?.(float32Array([Number.NaN, Number.NaN], [1, 2]), anchor, 2).ids ?? anchor)]).toEqual([
        0,
      ]);
    });
    for (const part of [before, after, other, foreign]) part.dispose();
  });
});

describe("a reduced vocabulary", () => {
  const made = () =>
    new DraftVocabulary(
      3,
      scope(() => keep(uint32Array([2, 5, 7]))),
      10,
    );

  test("ids and laws of the target", () => {
    const vocabulary = made();
    scope(() => {
      expect([...toInt32(vocabulary.toTarget(uint32Array([2, 0])))]).toEqual([7, 2]);
      const wide = vocabulary.widen(float32Array([0.5, 0.25, 0.25], [1, 3]), 8, 0);
      expect([...toFloat32(wide)]).toEqual([0, 0, 0.5, 0, 0, 0.25, 0, 0.25]);
      const bias = float32Array([0, 1, 2, 3, 4, 5, 6, 7], [1, 8]);
      expect([...toFloat32(vocabulary.restrict(bias, 8))]).toEqual([2, 5, 7]);
    });
    vocabulary.dispose();
  });

  test("a prefix of the target's ids is filled up, padding is cut", () => {
    const vocabulary = new DraftVocabulary(6, null, 10);
    scope(() => {
      const logits = float32Array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [1, 10]);
      expect([...toFloat32(vocabulary.own(logits))]).toEqual([1, 2, 3, 4, 5, 6]);
      expect([...toFloat32(vocabulary.clip(logits, 4))]).toEqual([1, 2, 3, 4]);
      expect([...toFloat32(vocabulary.widen(float32Array([0.5, 0.5], [1, 2]), 4, -1))]).toEqual([0.5, 0.5, -1, -1]);
    });
    vocabulary.dispose();
  });

  test("ids beyond a table stand for its first row", () => {
    scope(() => {
      expect([...toInt32(withinTable(int32Array([1, 5, 6, 9]), 6, 10))]).toEqual([1, 5, 0, 0]);
      const same = int32Array([9]);
      expect(withinTable(same, 10, 10)).toBe(same);
    });
  });
});
