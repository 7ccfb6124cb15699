import { beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import {
  acceptEqual,
  acceptedCount,
  acceptSampled,
  discardAcceptance,
  keepAcceptance,
  readAcceptance,
  replacementLaw,
} from "../../src/decoding/accept.ts";
import { blockCounts } from "../../src/decoding/block-counts.ts";
import { widen } from "../../src/decoding/draft-law.ts";
import { keyedDraws } from "../../src/decoding/keyed-draws.ts";
import { drawBits } from "../../src/decoding/rng.ts";
import { truncatedProbabilities } from "../../src/decoding/truncation.ts";
import {
  float32Array,
  int32Array,
  liveArrays,
  scope,
  shapeOf,
  toFloat32,
  toUint32,
  uint32Array,
} from "../../src/mlx/array.ts";
import { log, reshape, slice, softmax } from "../../src/mlx/ops.ts";
import { categorical, randomKey, uniform } from "../../src/mlx/random.ts";
import { goldenRoot, maxDifference } from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";
import { readFloats } from "./floats.ts";

interface Law {
  readonly index: number;
  readonly temperature: number;
  readonly top_p: number;
  readonly top_k: number;
  readonly min_p?: number;
}

interface SamplingGolden {
  readonly truncation: readonly Law[];
  readonly min_p: readonly Law[];
  readonly accept: readonly (Law & { one_hot_q: boolean; draft: readonly number[]; accepted: number })[];
  readonly rng: readonly { seed: number; counter: number; mlx_key_seed: string; uniform5: readonly number[] }[];
  readonly penalty: {
    presence: number;
    frequency: number;
    completion: readonly number[];
    draft: readonly number[];
    tensor: string;
  };
}

const folder = join(goldenRoot("drafters"), "policy");
const golden = JSON.parse(readFileSync(join(folder, "sampling.json"), "utf8")) as SamplingGolden;
const tensors = readFloats(join(folder, "sampling.safetensors"));

function tensor(name: string) {
  const found = tensors.get(name);
  if (found === undefined) throw new Error(`no golden tensor ${name}`);
  return found;
}

function golden2d(name: string) {
  const { values, shape } = tensor(name);
  return float32Array(values, shape);
}

const truncation = (law: Law) => ({
  temperature: law.temperature,
  topP: law.top_p,
  topK: law.top_k,
  minP: law.min_p ?? 0,
});

beforeAll(openTestMlx);

describe("golden sampling", () => {
  test.each(golden.truncation.map((law) => [law.index, law] as const))("truncation %d", (index, law) => {
    const p = scope(() => toFloat32(truncatedProbabilities(golden2d("logits"), truncation(law))));
    expect(maxDifference(p, tensor(`probs_${index}`).values)).toBeLessThan(1e-6);
  });

  test.each(golden.min_p.map((law) => [law.index, law] as const))("min_p %d", (index, law) => {
    const p = scope(() => toFloat32(truncatedProbabilities(golden2d("logits"), truncation(law))));
    const wanted = tensor(`minp_probs_${index}`).values;
    expect(maxDifference(p, wanted)).toBeLessThan(1e-6);
    // The same support, and removed tokens are exactly zero.
    expect(p.map((x) => Number(x === 0))).toEqual(wanted.map((x) => Number(x === 0)));
  });

  test.each(
    golden.accept.flatMap((c) =>
      (c.one_hot_q ? (["soft", "certain"] as const) : (["soft"] as const)).map((form) => [c.index, form, c] as const),
    ),
  )("accept %d, %s law", (_, form, golden) => {
    scope(() => {
      const { values: q, shape } = tensor(`accept_q_${golden.index}`);
      const [drafts = 0, vocab = 0] = shape;
      const target = truncatedProbabilities(golden2d("accept_v_logits"), truncation(golden));
      const block = {
        draft: int32Array(golden.draft, [1, drafts]),
        target: reshape(target, [1, drafts + 1, vocab]),
        law: form === "soft" ? float32Array(q, [1, drafts, vocab]) : null,
        uniform: reshape(golden2d(`accept_u_${golden.index}`), [1, drafts]),
        key: randomKey(1n),
      };
      const accepted = acceptedCount(block);
      expect([...toUint32(accepted)]).toEqual([golden.accepted]);
      const law = toFloat32(replacementLaw(block, accepted));
      const mass = law.reduce((sum, x) => sum + x, 0);
      const wanted = tensor(`accept_next_dist_${golden.index}`).values;
      expect(
        maxDifference(
          law.map((x) => x / mass),
          wanted,
        ),
      ).toBeLessThan(1e-5);
      const [committed = []] = readAcceptance(acceptSampled(block));
      expect([...committed.slice(0, -1)]).toEqual([...golden.draft.slice(0, golden.accepted)]);
      expect(law[committed.at(-1) as number]).toBeGreaterThan(0);
    });
  });

  test("draws by counter", () => {
    for (const { seed, counter, mlx_key_seed, uniform5 } of golden.rng) {
      expect(drawBits(BigInt(seed), counter)).toBe(BigInt(mlx_key_seed));
      const numbers = scope(() => toFloat32(uniform([5], randomKey(drawBits(BigInt(seed), counter)))));
      expect([...numbers]).toEqual([...uniform5]);
    }
  });

  test("penalties within a block", () => {
    const { presence, frequency, completion, draft, tensor: name } = golden.penalty;
    const { values, shape } = tensor(name);
    const [rows = 0, vocab = 0] = shape;
    const counts = new Float32Array(vocab);
    for (const id of completion) counts[id] = (counts[id] ?? 0) + 1;
    scope(() => {
      const counted = blockCounts(float32Array(counts, [1, vocab]), int32Array(draft, [1, draft.length]));
      expect(shapeOf(counted)).toEqual([1, rows, vocab]);
      const penalty = toFloat32(counted).map((count) => presence * Number(count > 0) + frequency * count);
      expect(maxDifference(penalty, values)).toBe(0);
    });
  });
});

describe("acceptance by equality", () => {
  test("equals a loop, for blocks of any length", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 0, max: 6 }),
        fc.infiniteStream(fc.integer({ min: 0, max: 2 })),
        (blocks, drafts, stream) => {
          const values = (count: number) => Array.from({ length: count }, () => stream.next().value as number);
          const draft = values(blocks * drafts);
          const chosen = values(blocks * (drafts + 1));
          const committed = scope(() =>
            readAcceptance(
              acceptEqual(int32Array(draft, [blocks, drafts]), uint32Array(chosen, [blocks, drafts + 1])),
            ).map((ids) => [...ids]),
          );
          const wanted = Array.from({ length: blocks }, (_, b) => {
            const own = chosen.slice(b * (drafts + 1), (b + 1) * (drafts + 1));
            let accepted = 0;
            while (accepted < drafts && draft[b * drafts + accepted] === own[accepted]) accepted++;
            return own.slice(0, accepted + 1);
          });
          expect(committed).toEqual(wanted);
        },
      ),
      { numRuns: 200 },
    );
  });

  test("keyed draws are those of single steps, whatever the block", () => {
    scope(() => {
      const p = softmax(golden2d("logits"), -1);
      const [rows = 0, vocab = 0] = shapeOf(p);
      const together = toUint32(keyedDraws(p, 7n, 40));
      for (let i = 0; i < rows; i++) {
        const single = categorical(log(slice(p, [i, 0], [i + 1, vocab])), -1, randomKey(drawBits(7n, 40 + i)));
        expect(toUint32(single)[0]).toBe(together[i] as number);
        expect([...toUint32(keyedDraws(slice(p, [i, 0], [i + 1, vocab]), 7n, 40 + i))]).toEqual([
          together[i] as number,
        ]);
      }
    });
  });
});

describe("acceptance by rejection", () => {
  const block = (p: number[][], q: number[][] | null, draft: number[], u: number[]) => {
    const vocab = p[0]?.length ?? 0;
    return {
      draft: int32Array(draft, [1, draft.length]),
      target: float32Array(p.flat(), [1, p.length, vocab]),
      law: q === null ? null : float32Array(q.flat(), [1, q.length, vocab]),
      uniform: float32Array(u, [1, draft.length]),
      key: randomKey(3n),
    };
  };

  test("equal laws accept everything, even where rounding leaves no residual", () => {
    scope(() => {
      const row = [0.5, 0.25, 0.25];
      const all = block([row, row, row], [row, row], [0, 2], [0.999, 0.999]);
      expect([...toUint32(acceptedCount(all))]).toEqual([2]);
      // Forced to fail in spite of it, the replacement comes from p, not from noise.
      const forced = replacementLaw(all, uint32Array([0]));
      expect([...toFloat32(forced)]).toEqual(row);
    });
  });

  test("a draft that the target forbids never stands; the residual has no mass on a certain draft", () => {
    scope(() => {
      const forbidden = block(
        [
          [0, 1],
          [1, 0],
        ],
        null,
        [0],
        [0],
      );
      expect(readAcceptance(acceptSampled(forbidden)).map((ids) => [...ids])).toEqual([[1]]);
      const refused = block(
        [
          [0.6, 0.3, 0.1],
          [1, 0, 0],
        ],
        null,
        [0],
        [0.7],
      );
      expect([...toFloat32(replacementLaw(refused, acceptedCount(refused)))]).toEqual([
        0,
        Math.fround(0.3),
        Math.fround(0.1),
      ]);
    });
  });

  test("blocks of one call do not mix", () => {
    scope(() => {
      const two = {
        draft: int32Array([1, 0], [2, 1]),
        target: float32Array([0, 1, 1, 0, 0, 1, 1, 0], [2, 2, 2]),
        law: null,
        uniform: float32Array([0.5, 0.5], [2, 1]),
        key: randomKey(5n),
      };
      expect(readAcceptance(acceptSampled(two)).map((ids) => [...ids])).toEqual([[1, 0], [1]]);
    });
  });

  test("without drafts the token comes from the only row", () => {
    scope(() => {
      const none = block([[0, 0, 1]], null, [], []);
      expect(readAcceptance(acceptSampled(none)).map((ids) => [...ids])).toEqual([[2]]);
    });
  });

  test("a kept acceptance outlives its scope and leaves no handle", () => {
    const before = liveArrays();
    const kept = scope(() =>
      keepAcceptance(
        acceptSampled(
          block(
            [
              [0, 1],
              [1, 0],
            ],
            null,
            [1],
            [0.5],
          ),
        ),
      ),
    );
    expect(readAcceptance(kept).map((ids) => [...ids])).toEqual([[1, 0]]);
    discardAcceptance(kept);
    expect(liveArrays()).toBe(before);
  });
});

test("laws over few ids are widened to the vocabulary", () => {
  scope(() => {
    const reduced = widen(float32Array([0.25, 0.75, 1, 0], [1, 2, 2]), int32Array([4, 1]), 5);
    expect([...toFloat32(reduced)]).toEqual([0, 0.75, 0, 0, 0.25, 0, 0, 0, 0, 1]);
    const candidates = widen(float32Array([0.25, 0.75, 0.5, 0.5], [1, 2, 2]), uint32Array([0, 2, 4, 3], [1, 2, 2]), 5);
    expect([...toFloat32(candidates)]).toEqual([0.25, 0, 0.75, 0, 0, 0, 0, 0, 0.5, 0.5]);
  });
});
