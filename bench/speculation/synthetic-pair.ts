/**
 * A pair of SmolLM2's size whose drafter is nearly always right, for what a trained one of an hour cannot show: how much
 * of a high acceptance the loop turns into speed. Target: SmolLM2's checkpoint with silent layers (the projections back
 * into the residual are zero), random embeddings, and a head that takes each token to the one `STEP` further, in a
 * circle of the ids that SmolLM2's drafter drafts. Drafter: that one, its backbone silent, and with a Markov head that
 * knows the step and is wrong behind every tenth token.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openCheckpoint, readTensorBytes } from "../../src/checkpoint/safetensors-set.ts";
import { type PlannedTensor, SafetensorsWriter } from "../../src/checkpoint/safetensors-writer.ts";

const STEP = 7919;
const WRONG_EVERY = 10;
const WEIGHTS = "model.safetensors";
/** 2^-7 and −1 in float16: codes 0 … 255 become values of [−1, 1). */
const EMBED_SCALE = 0x2000;
const EMBED_BIAS = 0xbc00;
/** ±1 in bfloat16. */
const PLUS = 0x3f80;
const MINUS = 0xbf80;

export interface SyntheticPair {
  readonly target: string;
  readonly drafter: string;
}

/**
 * Built once into `folder`.
 * @param target folder of SmolLM2's converted checkpoint: quantized, its embedding at 8 bits
 * @param drafter folder of its DSpark drafter
 */
export function syntheticPair(folder: string, target: string, drafter: string): SyntheticPair {
  const pair = { target: join(folder, "target"), drafter: join(folder, "drafter") };
  if (existsSync(folder)) return pair;
  const building = `${folder}.${process.pid}`;
  rmSync(building, { recursive: true, force: true });
  const circle = readConfig(drafter).draft_id_limit as number;
  buildTarget(target, join(building, "target"), circle);
  buildDrafter(drafter, join(building, "drafter"), circle);
  renameSync(building, folder);
  return pair;
}

type Change = (name: string, bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;

function buildTarget(from: string, to: string, circle: number): void {
  const config = readConfig(from);
  const vocab = config.vocab_size as number;
  const quantization = config.quantization as Record<string, unknown>;
  const head = { "lm_head.weight": "weight", "lm_head.scales": "scales", "lm_head.biases": "biases" } as const;
  const random = generator(1);
  let embedding: Uint8Array = new Uint8Array(0);
  const change: Change = (name, bytes) => {
    if (/(o_proj|down_proj)\.(scales|biases)$/.test(name)) return bytes.fill(0);
    if (name === "model.embed_tokens.weight") {
      for (let i = 0; i < bytes.length; i++) bytes[i] = random() >>> 24;
      embedding = bytes;
    }
    if (name === "model.embed_tokens.scales") new Uint16Array(bytes.buffer).fill(EMBED_SCALE);
    if (name === "model.embed_tokens.biases") new Uint16Array(bytes.buffer).fill(EMBED_BIAS);
    if (name === "model.norm.weight") new Float32Array(bytes.buffer).fill(1);
    return bytes;
  };
  const write = copyChanged(from, to, change, Object.keys(head), (name) =>
    name.replace("lm_head", "model.embed_tokens"),
  );
  const row = embedding.length / vocab;
  const moved = new Uint8Array(embedding.length);
  for (let t = 0; t < vocab; t++) moved.set(embedding.subarray(t * row, (t + 1) * row), next(t, circle) * row);
  write("lm_head.weight", moved);
  for (const [name, value] of [
    ["lm_head.scales", EMBED_SCALE],
    ["lm_head.biases", EMBED_BIAS],
  ] as const) {
    const groups = Number(quantization.group_size);
    write(name, new Uint8Array(new Uint16Array((vocab * row) / groups).fill(value).buffer));
  }
  write(null);
  const tied = quantization["model.embed_tokens"];
  writeConfig(to, { ...config, tie_word_embeddings: false, quantization: { ...quantization, lm_head: tied } });
}

function buildDrafter(from: string, to: string, circle: number): void {
  const config = readConfig(from);
  const vocab = config.vocab_size as number;
  const rank = config.markov_rank as number;
  const random = generator(2);
  const signs = Uint16Array.from({ length: vocab * rank }, () => (random() >>> 31 === 0 ? PLUS : MINUS));
  const of = (t: number) => signs.subarray(t * rank, (t + 1) * rank);
  const change: Change = (name, bytes) => {
    if (/(o_proj|down_proj)\.weight$/.test(name) || name === "norm.weight") return bytes.fill(0);
    const values = new Uint16Array(bytes.buffer);
    for (let t = 0; t < vocab; t++) {
      if (name.endsWith("markov_w1.weight")) values.set(of(t % WRONG_EVERY === 0 ? (t + 1) % vocab : t), t * rank);
      if (name.endsWith("markov_w2.weight")) values.set(of(t), next(t, circle) * rank);
    }
    return bytes;
  };
  copyChanged(from, to, change)(null);
  writeConfig(to, config);
}

function next(token: number, circle: number): number {
  return token < circle ? (token + STEP) % circle : token;
}

/**
 * Copies the folder, its weights through `change`.
 * @param added tensors beside the copied ones, shaped as `like` says; they come through the function that is returned,
 *   which finishes the file when called with null
 */
function copyChanged(
  from: string,
  to: string,
  change: Change,
  added: readonly string[] = [],
  like: (name: string) => string = (name) => name,
) {
  mkdirSync(to, { recursive: true });
  cpSync(from, to, { recursive: true, filter: (path) => !path.endsWith(WEIGHTS) });
  const checkpoint = openCheckpoint(from);
  const { tensors } = checkpoint;
  const planned = (name: string, as: string): PlannedTensor => {
    const entry = tensors.get(as);
    if (entry === undefined) throw new Error(`${from} has no ${as}`);
    return { name, dtype: entry.dtype, shape: entry.shape };
  };
  const names = [...tensors.keys()];
  const plan = [...names.map((name) => planned(name, name)), ...added.map((name) => planned(name, like(name)))];
  const writer = new SafetensorsWriter(join(to, WEIGHTS), plan);
  for (const name of names) writer.write(name, change(name, readTensorBytes(checkpoint, name)));
  return (name: string | null, bytes = new Uint8Array(0)): void => {
    if (name === null) writer.finish();
    else writer.write(name, bytes);
  };
}

function readConfig(folder: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(folder, "config.json"), "utf8")) as Record<string, unknown>;
}

function writeConfig(folder: string, config: Readonly<Record<string, unknown>>): void {
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
}

/** xorshift32: the same pair everywhere. */
function generator(seed: number): () => number {
  let state = Math.imul(seed, 0x9e3779b9) >>> 0;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
}
