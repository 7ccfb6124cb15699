/**
 * A grammar cuts a block at a draft that is illegal: in the rejection form that draft counts as rejected, and the token
 * of its place comes from what p has more than q. The first three tokens are compared with the exact masked law, in
 * float64; drawing from p there, or dropping the draft silently, is told apart from it.
 */
import { afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readAcceptance } from "../../src/decoding/accept.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { ALL_TOKENS, tokenMask } from "../../src/decoding/token-mask.ts";
import { truncatedProbabilities } from "../../src/decoding/truncation.ts";
import { float32Array, int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { slice } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";
import { randomFrom } from "./cap-traces.ts";
import { chiSquare } from "./chi-square.ts";

setDefaultTimeout(120_000);
beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

const V = 6;
const EOS = 5;
const DRAWS = 6000;
const Z_MAX = 4.5;

/** Logits by the token before, far enough apart that target and drafter often disagree. */
const TARGET = table(11, 1.3);
const DRAFTER = table(12, 1.1);
/** Legal successors of each token; EOS is legal behind some. */
const LEGAL = [[1, 2], [0, 2, 4, EOS], [0, 3], [1, 3, EOS], [0, 1, 2, 3, 4], []] as const;
const START = 0;

function table(seed: number, spread: number): Float32Array {
  const random = randomFrom(seed);
  return Float32Array.from({ length: V * V }, () => spread * 2 * (2 * random() - 1));
}

const rowOf = (logits: Float32Array, last: number) => logits.subarray(last * V, (last + 1) * V);
const maskAfter = (last: number) => {
  if (last === EOS) return ALL_TOKENS;
  let word = 0;
  for (const id of LEGAL[last] ?? []) word |= 1 << id;
  return tokenMask(Uint32Array.of(word), V);
};

interface Setting {
  readonly temperature: number;
  readonly topK: number;
}

/** The masked law behind `last`, in float64. */
function exact(last: number, { temperature, topK }: Setting): number[] {
  const legal: readonly number[] = LEGAL[last] ?? [];
  const shaped = [...rowOf(TARGET, last)].map((x, id) => (legal.includes(id) ? x / temperature : -Infinity));
  const least = topK === 0 ? -Infinity : ([...shaped].sort((a, b) => b - a)[topK - 1] ?? -Infinity);
  const weights = shaped.map((x) => (x >= least ? Math.exp(x) : 0));
  const mass = weights.reduce((sum, x) => sum + x, 0);
  return weights.map((x) => x / mass);
}

/** Probabilities of the first two tokens; behind an EOS nothing comes, which counts as another EOS. */
function exactPairs(setting: Setting): number[] {
  const cells = new Array<number>(V * V).fill(0);
  for (const [a, p] of exact(START, setting).entries()) {
    if (p === 0) continue;
    const next = a === EOS ? Array.from({ length: V }, (_, id) => Number(id === EOS)) : exact(a, setting);
    for (const [b, q] of next.entries()) cells[a * V + b] = (cells[a * V + b] ?? 0) + p * q;
  }
  return cells;
}

/** How a draft that is illegal is treated. */
type Way = "refused" | "shortened";

/** One block of at most `drafts` drafts, and single choices behind it until two tokens are there. */
function drawPair(sampler: Sampler, random: () => number, setting: Setting, drafts: number, way: Way): number[] {
  return scope(() => {
    const drafted: number[] = [];
    const laws: Float32Array[] = [];
    let last = START;
    let refused = -1;
    for (let i = 0; i < drafts && last !== EOS && refused < 0; i++) {
      const q = toFloat32(
        truncatedProbabilities(float32Array(rowOf(DRAFTER, last), [1, V]), { ...setting, topP: 1, minP: 0 }),
      );
      let u = random();
      let id = q.findIndex((x) => {
        u -= x;
        return u < 0;
      });
      if (id < 0) id = q.findLastIndex((x) => x > 0);
      if ((LEGAL[last] as readonly number[]).includes(id)) {
        drafted.push(id);
        laws.push(q);
        last = id;
      } else {
        refused = id;
        if (way === "refused") laws.push(q);
      }
    }
    const fed = [START, ...drafted];
    const logits = float32Array(
      fed.flatMap((id) => [...rowOf(TARGET, id)]),
      [fed.length, V],
    );
    const q =
      laws.length === 0
        ? null
        : float32Array(
            laws.flatMap((law) => [...law]),
            [laws.length, V],
          );
    const acceptance = sampler.accept(logits, int32Array(drafted), q, 0, {
      masks: fed.map(maskAfter),
      refused: way === "refused" && refused >= 0 ? int32Array([refused]) : null,
    });
    const [committed = new Uint32Array()] = readAcceptance(acceptance);
    const ids = [...committed];
    const end = ids.indexOf(EOS);
    const text = end < 0 ? ids : ids.slice(0, end + 1);
    while (text.length < 2) {
      const before = text.at(-1) ?? START;
      if (before === EOS) text.push(EOS);
      else {
        const row = slice(float32Array(rowOf(TARGET, before), [1, V]), [0, 0], [1, V]);
        const next = sampler.accept(row, int32Array([]), null, text.length, {
          masks: [maskAfter(before)],
          refused: null,
        });
        text.push(readAcceptance(next)[0]?.[0] ?? -1);
      }
    }
    return text;
  });
}

function fitOf(setting: Setting, drafts: number, way: Way, seed: number) {
  const random = randomFrom(seed);
  const counts = new Float64Array(V * V);
  const sampler = new Sampler({ ...GREEDY, ...setting, seed: null }, V, []);
  for (let i = 0; i < DRAWS; i++) {
    const [a = 0, b = 0] = drawPair(sampler, random, setting, drafts, way);
    counts[a * V + b] = (counts[a * V + b] ?? 0) + 1;
  }
  sampler.dispose();
  return chiSquare(counts, exactPairs(setting));
}

const SOFT: Setting = { temperature: 1.5, topK: 0 };
const CUT: Setting = { temperature: 1, topK: 3 };

test.each([
  ["one draft", SOFT, 1],
  ["three drafts", SOFT, 3],
  ["truncated laws", CUT, 2],
] as const)("%s", (_, setting, drafts) => {
  const { z, impossible } = fitOf(setting, drafts, "refused", drafts);
  expect(impossible).toBe(0);
  expect(z).toBeLessThan(Z_MAX);
});

test("a block that is only shortened follows another law", () => {
  expect(fitOf(SOFT, 3, "shortened", 5).z).toBeGreaterThan(Z_MAX);
});
