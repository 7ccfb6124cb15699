/**
 * A target and a drafter over a tiny vocabulary whose next token depends on the last one, drawn many times at once, and
 * the exact law of two tokens, computed apart from the code under test in float64.
 */
import type { acceptSampled, SampledBlock } from "../../src/decoding/accept.ts";
import type { blockCounts } from "../../src/decoding/block-counts.ts";
import { type DraftLaw, widen } from "../../src/decoding/draft-law.ts";
import { drawBits } from "../../src/decoding/rng.ts";
import { type Truncation, truncatedProbabilities } from "../../src/decoding/truncation.ts";
import { concatenate, float32Array, int32Array, type MlxArray, scalar, scope, toUint32 } from "../../src/mlx/array.ts";
import {
  add,
  argmax,
  astype,
  greater,
  log,
  multiply,
  reshape,
  slice,
  softmax,
  subtract,
  take,
  takeAlongAxis,
} from "../../src/mlx/ops.ts";
import { categorical, randomKey, uniform } from "../../src/mlx/random.ts";
import { randomFrom } from "./cap-traces.ts";
import { chiSquare, type Fit } from "./chi-square.ts";

const V = 8;
const REDUCED = [1, 2, 4, 5, 7];
const CANDIDATES = 3;
/** The committed token before the block. */
const PENDING = 3;

export interface Setting {
  readonly name: string;
  readonly law: Truncation;
  readonly presence: number;
  readonly frequency: number;
  readonly source: "soft" | "truncated" | "certain" | "reduced" | "candidates";
  /** Drafts in the first block. */
  readonly drafts: number;
}

/** The code under test; replaced by mutated copies. */
export interface Code {
  readonly acceptSampled: typeof acceptSampled;
  readonly blockCounts: typeof blockCounts;
}

/** Logits [from][to]: normal numbers times a spread, fixed. */
function table(seed: number, spread: number): Float32Array {
  const random = randomFrom(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Float32Array.from({ length: V * V }, () => spread * normal());
}

const TARGET = table(1, 1.2);
/** The drafter's logits: the target's, disturbed. */
const DRAFTER = table(2, 0.9).map((x, i) => x + 0.6 * (TARGET[i] as number));

interface Drafted {
  readonly ids: MlxArray;
  readonly law: DraftLaw;
}

/** `drafts` tokens after `last` [n]: ids int32 [n, drafts], law [n, drafts, V] or null. */
function propose(setting: Setting, last: MlxArray, draws: number, drafts: number, key: () => MlxArray): Drafted {
  const logits = float32Array(DRAFTER, [V, V]);
  const ids: MlxArray[] = [];
  const laws: MlxArray[] = [];
  let previous = last;
  for (let i = 0; i < drafts; i++) {
    const row = take(logits, previous, 0);
    let next: MlxArray;
    if (setting.source === "certain") {
      next = astype(argmax(row, -1), "int32");
    } else if (setting.source === "soft" || setting.source === "truncated") {
      const truncation = { temperature: 0.8, topP: 0.7, topK: 4, minP: 0 };
      const q = setting.source === "soft" ? softmax(row, -1) : truncatedProbabilities(row, truncation);
      next = astype(categorical(log(q), -1, key()), "int32");
      laws.push(reshape(q, [draws, 1, V]));
    } else {
      const few = setting.source === "reduced" ? fixedIds(draws) : rotatingIds(previous, draws);
      const q = softmax(takeAlongAxis(row, few, -1), -1);
      const width = setting.source === "reduced" ? REDUCED.length : CANDIDATES;
      const at = reshape(categorical(log(q), -1, key()), [draws, 1]);
      next = reshape(takeAlongAxis(few, at, -1), [draws]);
      const ids = setting.source === "reduced" ? int32Array(REDUCED) : reshape(few, [draws, 1, width]);
      laws.push(widen(reshape(q, [draws, 1, width]), ids, V));
    }
    ids.push(reshape(next, [draws, 1]));
    previous = next;
  }
  return { ids: concatenate(ids, 1), law: setting.source === "certain" ? null : concatenate(laws, 1) };
}

/** int32 [n, K]: the reduced vocabulary for every draw. */
function fixedIds(draws: number): MlxArray {
  return take(int32Array(REDUCED, [1, REDUCED.length]), int32Array(new Int32Array(draws)), 0);
}

/** int32 [n, K]: candidates that differ by place, as a selector's do: three of the vocabulary by the token before. */
function rotatingIds(previous: MlxArray, draws: number): MlxArray {
  const choices = Array.from({ length: V }, (_, token) => [1, 2, 5].map((step) => (token + step) % V)).flat();
  return reshape(take(int32Array(choices, [V, CANDIDATES]), previous, 0), [draws, CANDIDATES]);
}

/** The target's laws float32 [n, m + 1, V] after `last` and each draft, penalized as the row's own counts say. */
function verify(
  code: Code,
  setting: Setting,
  last: MlxArray,
  counts: MlxArray,
  draft: MlxArray,
  draws: number,
  m: number,
) {
  const fed = concatenate([reshape(last, [draws, 1]), draft], 1);
  const logits = take(float32Array(TARGET, [V, V]), fed, 0);
  const counted = code.blockCounts(counts, draft);
  const present = astype(greater(counted, scalar(0, "float32")), "float32");
  const penalty = add(
    multiply(present, scalar(setting.presence, "float32")),
    multiply(counted, scalar(setting.frequency, "float32")),
  );
  const rows = reshape(subtract(logits, penalty), [draws * (m + 1), V]);
  return reshape(truncatedProbabilities(rows, setting.law), [draws, m + 1, V]);
}

/** Counts of the first two committed tokens over `draws` independent requests: [V · V]. */
export function drawPairs(code: Code, setting: Setting, draws: number, seed: bigint): Float64Array {
  let counter = 0;
  const key = () => randomKey(drawBits(seed, counter++));
  const round = (last: MlxArray, counts: MlxArray, m: number) => {
    const { ids, law } = propose(setting, last, draws, m, key);
    const block: SampledBlock = {
      draft: ids,
      target: verify(code, setting, last, counts, ids, draws, m),
      law,
      uniform: uniform([draws, m], key()),
      key: key(),
    };
    return code.acceptSampled(block);
  };
  return scope(() => {
    const start = new Float32Array(draws * V);
    for (let i = 0; i < draws; i++) start[i * V + PENDING] = 1;
    const pending = int32Array(new Int32Array(draws).fill(PENDING));
    const counts = float32Array(start, [draws, V]);
    const first = round(pending, counts, setting.drafts);
    const accepted = toUint32(first.accepted);
    const tokens = toUint32(first.tokens);
    const width = setting.drafts + 1;
    // Where the first draft fell, the second token comes from a second round.
    const firstToken = astype(reshape(slice(first.tokens, [0, 0], [draws, 1]), [draws]), "int32");
    const grown = toUint32(firstToken);
    for (let i = 0; i < draws; i++)
      start[i * V + (grown[i] as number)] = (start[i * V + (grown[i] as number)] ?? 0) + 1;
    const second = toUint32(round(firstToken, float32Array(start, [draws, V]), 1).tokens);
    const pairs = new Float64Array(V * V);
    for (let i = 0; i < draws; i++) {
      const next = (accepted[i] as number) >= 1 ? tokens[i * width + 1] : second[i * 2];
      const cell = (tokens[i * width] as number) * V + (next as number);
      pairs[cell] = (pairs[cell] ?? 0) + 1;
    }
    return pairs;
  });
}

/** The law of the next token after `last` with these counts, in float64 and with loops. */
function exactLaw(setting: Setting, last: number, counts: readonly number[]): number[] {
  const { temperature, topK, topP, minP } = setting.law;
  const shaped = Array.from({ length: V }, (_, v) => {
    const count = counts[v] as number;
    return (TARGET[last * V + v] as number) - (count > 0 ? setting.presence : 0) - setting.frequency * count;
  });
  const weights = shaped.map((x) => Math.exp((x - Math.max(...shaped)) / temperature));
  const mass = weights.reduce((sum, x) => sum + x, 0);
  let p = weights.map((x) => x / mass);
  const ranked = (list: readonly number[]) => [...list].sort((a, b) => b - a);
  if (topK > 0 && topK < V) {
    const least = ranked(p)[topK - 1] as number;
    p = p.map((x) => (x >= least ? x : 0));
  }
  if (topP < 1) {
    let before = 0;
    let least = 1;
    for (const x of ranked(p)) {
      if (before >= topP) break;
      least = x;
      before += x;
    }
    p = p.map((x) => (x >= least ? x : 0));
  }
  if (minP > 0) {
    const least = minP * Math.max(...p);
    p = p.map((x) => (x >= least ? x : 0));
  }
  const kept = p.reduce((sum, x) => sum + x, 0);
  return p.map((x) => x / kept);
}

export function exactPairs(setting: Setting): number[] {
  const counts = Array.from({ length: V }, (_, v) => Number(v === PENDING));
  const first = exactLaw(setting, PENDING, counts);
  return first.flatMap((p, token) => {
    const grown = counts.map((count, v) => count + Number(v === token));
    return exactLaw(setting, token, grown).map((q) => p * q);
  });
}

export function fitOf(code: Code, setting: Setting, draws: number, seed: bigint): Fit {
  return chiSquare(drawPairs(code, setting, draws, seed), exactPairs(setting));
}
