/** Made-up drafter folders: a config and tensors of zeros, of which a test changes what it is about. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { dtypeBits, type SafetensorsDtype } from "../../src/checkpoint/safetensors-dtype.ts";
import type { TargetParts } from "../../src/nn/target-parts.ts";
import { tinySafetensors } from "../checkpoint/temporary-folder.ts";

export type Shapes = Readonly<Record<string, readonly number[]>>;

export const HIDDEN = 8;
export const VOCAB = 32;
const RANK = 4;

/** A target of six layers; nothing of it is computed. */
export const TARGET: TargetParts = {
  vocabSize: VOCAB,
  hiddenSize: HIDDEN,
  layers: 6,
  embedScale: 1,
  embed: (ids) => ids,
  head: (x) => x,
};

export const DSPARK = {
  model_type: "qwen3",
  architectures: ["Qwen3DSparkModel"],
  hidden_size: HIDDEN,
  vocab_size: VOCAB,
  num_hidden_layers: 1,
  intermediate_size: 16,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  block_size: 4,
  mask_token_id: 1,
  target_layer_ids: [1, 3],
  markov_rank: RANK,
} as const;

export const DFLASH = {
  model_type: "qwen3",
  architectures: ["DFlashDraftModel"],
  hidden_size: HIDDEN,
  vocab_size: VOCAB,
  num_hidden_layers: 1,
  intermediate_size: 16,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  max_position_embeddings: 64,
  block_size: 16,
  target_layer_ids: [1, 3],
} as const;

export const BACKBONE: Shapes = {
  "fc.weight": [HIDDEN, 2 * HIDDEN],
  "hidden_norm.weight": [HIDDEN],
  "norm.weight": [HIDDEN],
  "layers.0.input_layernorm.weight": [HIDDEN],
  "layers.0.post_attention_layernorm.weight": [HIDDEN],
  "layers.0.self_attn.q_proj.weight": [8, HIDDEN],
  "layers.0.self_attn.k_proj.weight": [4, HIDDEN],
  "layers.0.self_attn.v_proj.weight": [4, HIDDEN],
  "layers.0.self_attn.o_proj.weight": [HIDDEN, 8],
  "layers.0.self_attn.q_norm.weight": [4],
  "layers.0.self_attn.k_norm.weight": [4],
  "layers.0.mlp.gate_proj.weight": [16, HIDDEN],
  "layers.0.mlp.up_proj.weight": [16, HIDDEN],
  "layers.0.mlp.down_proj.weight": [HIDDEN, 16],
};

export const MARKOV: Shapes = {
  "markov_head.markov_w1.weight": [VOCAB, RANK],
  "markov_head.markov_w2.weight": [VOCAB, RANK],
};

export const CONFIDENCE: Shapes = {
  "confidence_head.proj.weight": [1, HIDDEN + RANK],
  "confidence_head.proj.bias": [1],
};

export const DSPARK_TENSORS: Shapes = { ...BACKBONE, ...MARKOV, ...CONFIDENCE };

/** A speculators export of the same head. */
export const SPECULATORS = {
  architectures: ["DSparkDraftModel"],
  speculators_model_type: "dspark",
  speculators_config: { algorithm: "dspark", proposal_methods: [{ speculative_tokens: 3 }] },
  block_size: 4,
  mask_token_id: 1,
  markov_rank: RANK,
  aux_hidden_state_layer_ids: [2, 4],
  transformer_layer_config: {
    model_type: "qwen3",
    hidden_size: HIDDEN,
    vocab_size: VOCAB,
    num_hidden_layers: 1,
    intermediate_size: 16,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 4,
  },
} as const;

/** `shape` without some of its entries. */
export function without<T>(record: Readonly<Record<string, T>>, ...keys: readonly string[]): Record<string, T> {
  return Object.fromEntries(Object.entries(record).filter(([key]) => !keys.includes(key)));
}

let count = 0;
/** Writes a folder below `root` and returns its path. */
export function drafterFolder(
  root: string,
  config: Readonly<Record<string, unknown>>,
  shapes: Shapes,
  dtypes: Readonly<Record<string, SafetensorsDtype>> = {},
): string {
  const dir = join(root, `drafter-${count++}`);
  mkdirSync(dir);
  writeFileSync(join(dir, "config.json"), JSON.stringify(config));
  const tensors = Object.entries(shapes).map(([name, shape]) => {
    const dtype = dtypes[name] ?? "F32";
    const bytes = (shape.reduce((a, b) => a * b, 1) * dtypeBits(dtype)) / 8;
    return [name, { dtype, shape, bytes }] as const;
  });
  writeFileSync(join(dir, "model.safetensors"), tinySafetensors(Object.fromEntries(tensors)));
  return dir;
}
