/** One row's choice: transforms equal a sequential reference, draws depend on (seed, index) alone and follow the law. */
import { afterEach, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { drawBits, freshSeed } from "../../src/decoding/rng.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import type { SamplingParams } from "../../src/decoding/sampling-params.ts";
import { truncatedProbabilities } from "../../src/decoding/truncation.ts";
import { firstInt, float32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { astype, log, slice } from "../../src/mlx/ops.ts";
import { categorical, randomKey } from "../../src/mlx/random.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";
import { argmax, logSoftmax, penalized, survivors } from "./sequential.ts";

setDefaultTimeout(30_000);
beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

const VOCAB = 24;
const params = (part: Partial<SamplingParams>): SamplingParams => ({ ...GREEDY, ...part });

/** The tokens that a fresh sampler chooses for rows of logits, in order. */
function choices(part: Partial<SamplingParams>, prompt: readonly number[], rows: readonly Float32Array[]): number[] {
  const sampler = new Sampler(params(part), rows[0]?.length ?? VOCAB, prompt);
  const out = rows.map((row, index) =>
    scope(() => firstInt(sampler.choose(float32Array(row, [1, row.length]), index))),
  );
  sampler.dispose();
  return out;
}

function rowOf(seed: number, scale = 2): Float32Array {
  return Float32Array.from({ length: VOCAB }, (_, i) => scale * Math.sin(seed * 17.3 + i * 5.7));
}

const law = fc.record({
  temperature: fc.constantFrom(0, 0.5, 1, 1.7),
  topP: fc.constantFrom(1, 0.9),
  topK: fc.constantFrom(0, 6),
  minP: fc.constantFrom(0, 0.1),
  presencePenalty: fc.constantFrom(0, 1.5, -0.7),
  frequencyPenalty: fc.constantFrom(0, 0.8, -2),
  repetitionPenalty: fc.constantFrom(1, 1.3, 0.8),
  logitBias: fc.array(fc.tuple(fc.nat(VOCAB + 5), fc.constantFrom(-100, -2.5, 3, 100)), { maxLength: 4 }),
  seed: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }).map(String),
});
const prompts = fc.array(fc.nat(VOCAB - 1), { maxLength: 8 });
/** Few different rows, so that tokens come again and penalties act. */
const rowSequences = fc
  .array(fc.nat(3), { minLength: 1, maxLength: 14 })
  .map((seeds) => seeds.map((seed) => rowOf(seed)));

test("every choice equals the sequential reference", () => {
  fc.assert(
    fc.property(law, prompts, rowSequences, (sampling, prompt, rows) => {
      const expected: number[] = [];
      for (const [index, row] of rows.entries()) {
        const shaped = penalized(row, sampling, prompt, expected);
        expected.push(
          sampling.temperature === 0
            ? argmax(shaped)
            : scope(() => {
                const p = truncatedProbabilities(float32Array(shaped, [1, VOCAB]), params(sampling));
                return firstInt(categorical(log(p), -1, randomKey(drawBits(BigInt(sampling.seed), index))));
              }),
        );
      }
      expect(choices(sampling, prompt, rows)).toEqual(expected);
    }),
    { numRuns: 200 },
  );
});

describe("the draw", () => {
  test("depends on seed and index alone: neighbours, order and other draws change nothing", () => {
    const rows = Array.from({ length: 8 }, (_, i) => rowOf(i));
    const expected = choices({ temperature: 1, seed: "42" }, [], rows);
    const together = scope(() => {
      const all = float32Array(Float32Array.from(rows.flatMap((row) => [...row])), [8, VOCAB]);
      const sampler = new Sampler(params({ temperature: 1, seed: "42" }), VOCAB, []);
      const noise = new Sampler(params({ temperature: 1, seed: "1" }), VOCAB, []);
      const drawn: number[] = [];
      for (const index of [7, 3, 0, 1, 6, 2, 5, 4]) {
        const own = slice(all, [index, 0], [index + 1, VOCAB]);
        noise.choose(own, index);
        drawn[index] = firstInt(sampler.choose(own, index));
      }
      noise.dispose();
      sampler.dispose();
      return drawn;
    });
    expect(together).toEqual(expected);
    expect(choices({ temperature: 1, seed: "43" }, [], rows)).not.toEqual(expected);
  });

  test("seeds are 64 bits: decimal strings, wrapped beyond", () => {
    const rows = Array.from({ length: 30 }, () => rowOf(1));
    const big = (1n << 64n) - 1n;
    expect(choices({ temperature: 1, seed: String(big) }, [], rows)).toEqual(
      choices({ temperature: 1, seed: "-1" }, [], rows),
    );
    expect(choices({ temperature: 1, seed: String(1n << 63n) }, [], rows)).not.toEqual(
      choices({ temperature: 1, seed: "0" }, [], rows),
    );
  });

  test("a fresh seed is 64 random bits", () => {
    const seeds = new Set(Array.from({ length: 1000 }, freshSeed));
    expect(seeds.size).toBe(1000);
    for (const bit of [0n, 31n, 32n, 63n]) {
      const ones = [...seeds].filter((seed) => (seed >> bit) & 1n).length;
      expect(Math.abs(ones - 500)).toBeLessThan(100);
    }
    const sampler = new Sampler(params({ temperature: 1, seed: null }), VOCAB, []);
    expect(sampler.seed).not.toBe(0n);
    sampler.dispose();
  });

  /** Σ (observed − expected)² / expected */
  function chiSquare(counts: readonly number[], p: readonly number[]): { statistic: number; freedom: number } {
    const draws = counts.reduce((sum, count) => sum + count, 0);
    let statistic = 0;
    let freedom = -1;
    for (const [i, count] of counts.entries()) {
      const expected = draws * (p[i] ?? 0);
      if (expected === 0) {
        expect(count).toBe(0);
        continue;
      }
      statistic += (count - expected) ** 2 / expected;
      freedom++;
    }
    return { statistic, freedom };
  }

  /** Upper bound of a chi-square value with probability 0.999 (Wilson and Hilferty, 1931). */
  const bound = (freedom: number) => freedom * (1 - 2 / (9 * freedom) + 3.09 * Math.sqrt(2 / (9 * freedom))) ** 3;

  test.each([
    ["temperature 1", { temperature: 1 }],
    ["temperature 0.6, top-p 0.9", { temperature: 0.6, topP: 0.9 }],
    ["top-k 7, min-p 0.05", { temperature: 1.4, topK: 7, minP: 0.05 }],
    ["bias", { temperature: 1, logitBias: [[3, 1.5]] as const }],
  ])("follows the exact probabilities: %s", (_, part) => {
    const row = Float32Array.from({ length: 12 }, (_, i) => 1.5 * Math.sin(i * 2.1));
    const sampling = params({ ...part, seed: "20260" });
    const shaped = penalized(row, sampling, [], []);
    const plain = Float32Array.from(logSoftmax(shaped.map((x) => x / sampling.temperature)), Math.exp);
    const kept = survivors(plain, sampling);
    const mass = [...kept].reduce((sum, id) => sum + (plain[id] ?? 0), 0);
    const p = Array.from(plain, (value, id) => (kept.has(id) ? value / mass : 0));
    const counts = new Array<number>(12).fill(0);
    const sampler = new Sampler(sampling, 12, []);
    for (let index = 0; index < 4000; index++) {
      const id = scope(() => firstInt(sampler.choose(float32Array(row, [1, 12]), index)));
      counts[id] = (counts[id] ?? 0) + 1;
    }
    sampler.dispose();
    const { statistic, freedom } = chiSquare(counts, p);
    expect(freedom).toBeGreaterThan(3);
    expect(statistic).toBeLessThan(bound(freedom));
  });

  test("neighbouring draws of a seed, and equal draws of neighbouring seeds, are independent", () => {
    const flat = new Float32Array(4);
    const draw = (seed: bigint, index: number) =>
      scope(() => firstInt(categorical(float32Array(flat, [1, 4]), -1, randomKey(drawBits(seed, index)))));
    const byIndex = Array.from({ length: 3001 }, (_, index) => draw(7n, index));
    const bySeed = Array.from({ length: 3001 }, (_, seed) => draw(BigInt(seed), 0));
    for (const sequence of [byIndex, bySeed]) {
      const pairs = new Array<number>(16).fill(0);
      for (let i = 0; i + 1 < sequence.length; i++) {
        const cell = (sequence[i] ?? 0) * 4 + (sequence[i + 1] ?? 0);
        pairs[cell] = (pairs[cell] ?? 0) + 1;
      }
      const { statistic, freedom } = chiSquare(pairs, new Array(16).fill(1 / 16));
      expect(statistic).toBeLessThan(bound(freedom));
    }
  });
});

describe("logit bias", () => {
  const rows = Array.from({ length: 40 }, (_, i) => rowOf(i));
  test.each([0, 1, 2])("+100 makes a token certain, -100 impossible, at temperature %d", (temperature) => {
    expect(new Set(choices({ temperature, logitBias: [[5, 100]] }, [], rows))).toEqual(new Set([5]));
    const most = choices({ temperature }, [], rows);
    expect(most).toContain(most[0] ?? -1);
    expect(choices({ temperature, logitBias: [[most[0] ?? 0, -100]] }, [], rows)).not.toContain(most[0] ?? -1);
  });

  test("biases of one id add up, those beyond the vocabulary are ignored", () => {
    expect(
      choices(
        {
          logitBias: [
            [5, 50],
            [5, -150],
            [VOCAB, 100],
            [999_999, 100],
          ],
        },
        [],
        rows,
      ),
    ).toEqual(choices({ logitBias: [[5, -100]] }, [], rows));
  });
});

describe("greedy", () => {
  test("is plain only without bias and penalties, and below the smallest temperature", () => {
    const kind = (part: Partial<SamplingParams>) => {
      const sampler = new Sampler(params(part), VOCAB, [1]);
      sampler.dispose();
      return sampler.plainGreedy;
    };
    expect(kind({})).toBe(true);
    expect(kind({ temperature: 9e-6 })).toBe(true);
    expect(kind({ temperature: 1e-5 })).toBe(false);
    expect(kind({ topP: 0.5, topK: 3, minP: 0.1 })).toBe(true);
    for (const part of [
      { presencePenalty: 1 },
      { frequencyPenalty: 1 },
      { repetitionPenalty: 2 },
      { logitBias: [[1, 1]] },
    ]) {
      expect(kind(part as Partial<SamplingParams>)).toBe(false);
    }
  });

  test("takes the first of equals, in half precision too", () => {
    const sampler = new Sampler(params({ logitBias: [[0, 0]] }), 4, []);
    scope(() => {
      const tied = float32Array([1, 3, 3, 2], [1, 4]);
      expect(firstInt(sampler.choose(tied, 0))).toBe(1);
      expect(firstInt(sampler.choose(astype(tied, "bfloat16"), 1))).toBe(1);
    });
    sampler.dispose();
  });
});

test("half-precision logits are sampled in float32", () => {
  const row = rowOf(3);
  const half = scope(() => toFloat32(astype(float32Array(row, [1, VOCAB]), "bfloat16")));
  const sampling = params({ temperature: 0.8, seed: "9", presencePenalty: 0.3 });
  const sampler = new Sampler(sampling, VOCAB, []);
  const drawn = Array.from({ length: 50 }, (_, index) =>
    scope(() => firstInt(sampler.choose(astype(float32Array(row, [1, VOCAB]), "bfloat16"), index))),
  );
  sampler.dispose();
  expect(drawn).toEqual(choices(sampling, [], new Array<Float32Array>(50).fill(half)));
});
