/** Random numbers, truncation and penalties against the golden vectors of the policy set (decoding.md §5). */
import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { readSafetensorsHeader } from "../../src/checkpoint/safetensors-header.ts";
import { drawBits } from "../../src/decoding/rng.ts";
import { type Truncation, truncatedProbabilities } from "../../src/decoding/truncation.ts";
import { firstInt, float32Array, liveArrays, scope, toFloat32, toUint32 } from "../../src/mlx/array.ts";
import { slice } from "../../src/mlx/ops.ts";
import { categorical, randomKey } from "../../src/mlx/random.ts";
import { goldenRoot } from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";
import { penalized } from "./sequential.ts";

interface Setting {
  readonly index: number;
  readonly temperature: number;
  readonly top_p: number;
  readonly top_k: number;
  readonly min_p?: number;
}
interface Golden {
  readonly truncation: readonly Setting[];
  readonly min_p: readonly Setting[];
  readonly rng: readonly {
    readonly seed: number;
    readonly counter: number;
    readonly mlx_key_seed: string;
    readonly mlx_key: readonly number[];
    readonly categorical_row0_T1: number;
  }[];
  readonly penalty: { readonly presence: number; readonly frequency: number; readonly completion: readonly number[] };
}

const folder = join(goldenRoot("drafters"), "policy");
const golden = JSON.parse(readFileSync(join(folder, "sampling.json"), "utf8")) as Golden;
const file = join(folder, "sampling.safetensors");
const { tensors } = readSafetensorsHeader(file);
const bytes = readFileSync(file);

function tensor(name: string): { shape: readonly number[]; values: Float32Array } {
  const place = tensors.get(name);
  if (place?.dtype !== "F32") throw new Error(`${name} is not among the golden float32 tensors`);
  const data = Uint8Array.from(bytes.subarray(place.offset, place.offset + place.bytes));
  return { shape: place.shape, values: new Float32Array(data.buffer) };
}

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

describe("random numbers", () => {
  test.each(golden.rng.map((draw) => [`seed ${draw.seed}, draw ${draw.counter}`, draw] as const))("%s", (_, draw) => {
    const bits = drawBits(BigInt(draw.seed), draw.counter);
    expect(String(bits)).toBe(draw.mlx_key_seed);
    scope(() => {
      expect([...toUint32(randomKey(bits))]).toEqual([...draw.mlx_key]);
      const { shape, values } = tensor("logits");
      const row = slice(float32Array(values, shape), [0, 0], [1, shape[1] ?? 0]);
      expect(firstInt(categorical(row, -1, randomKey(bits)))).toBe(draw.categorical_row0_T1);
    });
  });
});

describe("truncation", () => {
  const listed = [
    ...golden.truncation.map((setting) => [`probs_${setting.index}`, setting] as const),
    ...golden.min_p.map((setting) => [`minp_probs_${setting.index}`, setting] as const),
  ];
  test.each(listed)("%s", (name, { temperature, top_p, top_k, min_p }) => {
    const truncation: Truncation = { temperature, topP: top_p, topK: top_k, minP: min_p ?? 0 };
    const expected = tensor(name).values;
    const { shape, values } = tensor("logits");
    const actual = scope(() => toFloat32(truncatedProbabilities(float32Array(values, shape), truncation)));
    for (const [i, p] of actual.entries()) {
      const wanted = expected[i] ?? Number.NaN;
      expect(Math.abs(p - wanted)).toBeLessThan(2e-6);
      // The reference leaves about 1e-20 of what it removes; here it is exactly 0.
      expect(p === 0).toBe(wanted < 1e-15);
    }
  });
});

test("penalties of the completion so far", () => {
  const { presence, frequency, completion } = golden.penalty;
  const { shape, values } = tensor("penalty_rows");
  const vocab = shape[1] ?? 0;
  const logits = new Float32Array(vocab);
  const params = { presencePenalty: presence, frequencyPenalty: frequency, repetitionPenalty: 1, logitBias: [] };
  const shaped = penalized(logits, params, [], completion);
  for (let id = 0; id < vocab; id++) expect(shaped[id]).toBeCloseTo(0 - (values[id] ?? Number.NaN), 6);
});
