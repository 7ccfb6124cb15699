/**
 * GGUF metadata → the config.json that our loaders read, for the architectures that we run from GGUF (llama, qwen2,
 * qwen3). Keys: models-dense.md §8.2. Whatever would change the forward pass and has no place there is refused by name.
 */
import { CheckpointError } from "../../checkpoint/errors.ts";
import type { GgufMetadata } from "../../checkpoint/gguf-metadata.ts";
import type { GgufSet } from "../../checkpoint/gguf-split.ts";
import { readExact, withFile } from "../../checkpoint/positional-read.ts";

export type GgufArchitecture = "llama" | "qwen2" | "qwen3";

/** The fields of config.json that follow from metadata and tensor names; `quantization` is added by the plan. */
export interface GgufModelConfig {
  readonly architecture: GgufArchitecture;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabSize: number;
  readonly tied: boolean;
  readonly attentionBias: boolean;
  /** Ready for JSON. */
  readonly json: Readonly<Record<string, unknown>>;
}

const CLASSES: Readonly<Record<GgufArchitecture, string>> = {
  llama: "LlamaForCausalLM",
  qwen2: "Qwen2ForCausalLM",
  qwen3: "Qwen3ForCausalLM",
};
/** Metadata (below the architecture's prefix) that we do not implement: refused unless it says "off". */
const OFF_ONLY: readonly (readonly [key: string, off: number])[] = [
  ["expert_count", 0],
  ["rope.scaling.attn_factor", 1],
  ["attention.scale", 0],
  ["logit_scale", 1],
  ["residual_scale", 1],
  ["embedding_scale", 1],
];

/** @throws CheckpointError */
export function ggufModelConfig(set: GgufSet, file: string): GgufModelConfig {
  const meta = set.metadata;
  const architecture = readArchitecture(meta, file);
  const key = (name: string) => `${architecture}.${name}`;
  for (const [name, off] of OFF_ONLY) {
    const value = meta.number(key(name), off);
    if (value !== off) meta.fail(key(name), `${value} is not supported for ${architecture} files`);
  }
  const layers = meta.int(key("block_count"));
  const hidden = meta.int(key("embedding_length"));
  const heads = meta.uniformInt(key("attention.head_count"));
  const kvHeads = meta.uniformInt(key("attention.head_count_kv"), heads);
  const headDim = meta.int(key("attention.key_length"), hidden / heads);
  const intermediate = meta.uniformInt(key("feed_forward_length"));
  for (const [name, value] of Object.entries({ layers, hidden, heads, kvHeads, headDim, intermediate })) {
    if (!Number.isInteger(value) || value < 1) throw error(file, `metadata gives ${value} for ${name}`);
  }
  if (meta.int(key("attention.value_length"), headDim) !== headDim) {
    meta.fail(key("attention.value_length"), "differs from key_length, which is not supported");
  }
  if (meta.int(key("rope.dimension_count"), headDim) !== headDim) {
    meta.fail(key("rope.dimension_count"), `rotates only a part of the ${headDim} features, which is not supported`);
  }
  if (architecture === "qwen2" && headDim * heads !== hidden) {
    meta.fail(key("attention.key_length"), `qwen2 needs ${hidden / heads}, found ${headDim}`);
  }
  const table = set.tensors.get("token_embd.weight");
  const vocabSize = table?.shape[0];
  if (vocabSize === undefined) throw error(file, "has no tensor token_embd.weight");
  const tied = !set.tensors.has("output.weight");
  const attentionBias = architecture === "llama" && set.tensors.has("blk.0.attn_q.bias");
  const ropeFreqs = readRopeFreqs(set, headDim);
  const scaling = ropeScaling(meta, architecture);
  const json = {
    architectures: [CLASSES[architecture]],
    model_type: architecture,
    hidden_size: hidden,
    num_hidden_layers: layers,
    intermediate_size: intermediate,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    rms_norm_eps: meta.number(key("attention.layer_norm_rms_epsilon")),
    vocab_size: vocabSize,
    max_position_embeddings: meta.int(key("context_length")),
    rope_theta: meta.number(key("rope.freq_base"), 10000),
    tie_word_embeddings: tied,
    ...(architecture === "llama" ? { attention_bias: attentionBias, mlp_bias: false } : {}),
    ...(scaling === null ? {} : { rope_scaling: scaling }),
    ...(ropeFreqs === null ? {} : { rope_freqs: ropeFreqs }),
  };
  return { architecture, layers, heads, kvHeads, headDim, vocabSize, tied, attentionBias, json };
}

function readArchitecture(meta: GgufMetadata, file: string): GgufArchitecture {
  const type = meta.string("general.type", "model");
  const name = meta.string("general.architecture");
  if (type !== "model") throw error(file, `is not a model but ${JSON.stringify(type)} (${name})`);
  if (name === "llama" || name === "qwen2" || name === "qwen3") return name;
  throw error(
    file,
    `architecture ${JSON.stringify(name)} is not read from GGUF (llama, qwen2 and qwen3 are); use its safetensors or MLX version`,
  );
}

function error(file: string, message: string): CheckpointError {
  return new CheckpointError({ file, check: "architecture", message });
}

function ropeScaling(meta: GgufMetadata, architecture: GgufArchitecture): Record<string, unknown> | null {
  const key = (name: string) => `${architecture}.rope.scaling.${name}`;
  const type = meta.string(key("type"), "none");
  if (type === "none") return null;
  const factor = meta.number(key("factor"));
  if (factor <= 0) meta.fail(key("factor"), `must be positive, found ${factor}`);
  if (type === "linear") return { type, rope_type: type, factor };
  if (type !== "yarn")
    return meta.fail(key("type"), `${JSON.stringify(type)} is not supported (none, linear, yarn are)`);
  const optional = [
    ["beta_fast", "yarn_beta_fast"],
    ["beta_slow", "yarn_beta_slow"],
  ] as const;
  const betas = optional
    .filter(([, name]) => meta.has(key(name)))
    .map(([field, name]) => [field, meta.number(key(name))]);
  const original = meta.int(key("original_context_length"), null);
  return {
    type,
    rope_type: type,
    factor,
    ...(original === null ? {} : { original_max_position_embeddings: original }),
    ...Object.fromEntries(betas),
  };
}

/** The divisors t_j of `rope_freqs.weight`: freqs_j = theta^(2j/hd) · t_j. This is how llama3 scaling arrives. */
function readRopeFreqs(set: GgufSet, headDim: number): number[] | null {
  const tensor = set.tensors.get("rope_freqs.weight");
  if (tensor === undefined) return null;
  const bad = (message: string) =>
    new CheckpointError({ file: tensor.file, tensor: tensor.name, check: "shape", message });
  if (tensor.type.name !== "F32" || tensor.shape.length !== 1 || tensor.shape[0] !== headDim / 2) {
    throw bad(`is ${tensor.type.name} [${tensor.shape}]; F32 [${headDim / 2}] is expected`);
  }
  const raw = new Uint8Array(tensor.bytes);
  withFile(tensor.file, (fd) => readExact(fd, tensor.file, raw, tensor.offset));
  const values = Array.from(new Float32Array(raw.buffer));
  if (!values.every((t) => Number.isFinite(t) && t > 0)) throw bad("holds divisors that are not positive and finite");
  return values;
}
