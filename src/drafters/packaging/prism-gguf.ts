/**
 * PrismML's DSpark heads as one GGUF file of plain floats: its metadata as a config of DeepSpec's form, its tensors in
 * bfloat16 under DeepSpec's names. drafters.md §3.5.
 */
import { closeSync, openSync } from "node:fs";
import path from "node:path";
import { writeDurably } from "../../checkpoint/built-folder.ts";
import { decodeFloats, encodeFloats, type FloatDtype } from "../../checkpoint/float-bytes.ts";
import { type GgufFile, type GgufTensor, readGguf } from "../../checkpoint/gguf-container.ts";
import { assertUnchanged, readExact } from "../../checkpoint/positional-read.ts";
import { SafetensorsWriter } from "../../checkpoint/safetensors-writer.ts";
import { DrafterError } from "../errors.ts";

const FLOATS: ReadonlyMap<string, FloatDtype> = new Map([
  ["F32", "F32"],
  ["F16", "F16"],
  ["BF16", "BF16"],
]);
const TOP: ReadonlyMap<string, string> = new Map([
  ["token_embd", "embed_tokens"],
  ["output", "lm_head"],
  ["output_norm", "norm"],
  ["dspark.fc", "fc"],
  ["dspark.hidden_norm", "hidden_norm"],
  ["dspark.markov_head_a", "markov_head.markov_w1"],
  ["dspark.markov_head_b", "markov_head.markov_w2"],
  ["dspark.confidence_head", "confidence_head.proj"],
  ["dspark.log_snr_fc1", "log_snr_embed.fc1"],
  ["dspark.log_snr_fc2", "log_snr_embed.fc2"],
]);
const LAYER: ReadonlyMap<string, string> = new Map([
  ["attn_norm", "input_layernorm"],
  ["ffn_norm", "post_attention_layernorm"],
  ["attn_q", "self_attn.q_proj"],
  ["attn_k", "self_attn.k_proj"],
  ["attn_v", "self_attn.v_proj"],
  ["attn_output", "self_attn.o_proj"],
  ["attn_q_norm", "self_attn.q_norm"],
  ["attn_k_norm", "self_attn.k_norm"],
  ["ffn_gate", "mlp.gate_proj"],
  ["ffn_up", "mlp.up_proj"],
  ["ffn_down", "mlp.down_proj"],
]);

/** A file that can be converted. */
export interface GgufDrafter {
  readonly file: GgufFile;
  /** Tensors by DeepSpec's name. */
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  readonly config: Readonly<Record<string, unknown>>;
}

/** @throws DrafterError, or CheckpointError for a damaged file */
export function readGgufDrafter(source: string): GgufDrafter {
  const file = readGguf(source);
  const { metadata } = file;
  const refuse = (message: string): never => {
    throw new DrafterError(source, "gguf", message);
  };
  const architecture = metadata.string("general.architecture", "");
  if (architecture !== "dspark") {
    refuse(`is a GGUF of the architecture ${JSON.stringify(architecture)}; drafters have "dspark"`);
  }
  const others = [...file.tensors.values()].filter((tensor) => !FLOATS.has(tensor.type.name));
  if (others.length > 0) {
    const types = [...new Set(others.map(({ type }) => `${type.id} (${type.name})`))].join(", ");
    refuse(`holds tensors of the types ${types}; only F32, F16 and BF16 are converted: take the bf16 file`);
  }
  const tensors = new Map<string, GgufTensor>();
  for (const tensor of file.tensors.values()) {
    tensors.set(deepSpecName(tensor.name) ?? refuse(`has an unknown tensor ${JSON.stringify(tensor.name)}`), tensor);
  }
  return { file, tensors, config: ggufConfig(file, tensors, refuse) };
}

function deepSpecName(name: string): string | null {
  const match = /^(.*)\.(weight|bias)$/.exec(name);
  const [, stem = "", part = ""] = match ?? [];
  const top = TOP.get(stem);
  if (top !== undefined) return `${top}.${part}`;
  const [, layer = "", inner = ""] = /^blk\.(\d+)\.(.*)$/.exec(stem) ?? [];
  const named = LAYER.get(inner);
  return named === undefined ? null : `layers.${layer}.${named}.${part}`;
}

function ggufConfig(
  { metadata }: GgufFile,
  tensors: ReadonlyMap<string, GgufTensor>,
  refuse: (message: string) => never,
): Record<string, unknown> {
  const key = (name: string) => `dspark.${name}`;
  // The drafter's own keys carry the prefix of the architecture and one of their own.
  const own = (name: string) => key(`dspark.${name}`);
  const hidden = metadata.int(key("embedding_length"));
  const heads = metadata.uniformInt(key("attention.head_count"));
  const vocab = tensors.get("embed_tokens.weight")?.shape[0] ?? refuse("has no token_embd.weight");
  return {
    architectures: ["Qwen3DSparkModel"],
    model_type: "qwen3",
    hidden_size: hidden,
    intermediate_size: metadata.uniformInt(key("feed_forward_length")),
    num_hidden_layers: metadata.int(key("block_count")),
    num_attention_heads: heads,
    num_key_value_heads: metadata.uniformInt(key("attention.head_count_kv")),
    head_dim: metadata.int(key("attention.key_length"), hidden / heads),
    rms_norm_eps: metadata.number(key("attention.layer_norm_rms_epsilon"), 1e-6),
    vocab_size: vocab,
    rope_parameters: { rope_type: "default", rope_theta: metadata.number(key("rope.freq_base"), 1e6) },
    block_size: metadata.int(own("block_size")),
    mask_token_id: metadata.int(own("mask_token_id")),
    target_layer_ids: metadata.ints(own("target_layers")),
    markov_rank: metadata.int(own("markov_rank"), 0),
    enable_confidence_head: metadata.bool(own("confidence_head"), false),
    confidence_head_with_markov: metadata.bool(own("confidence_head_with_markov"), false),
    tie_word_embeddings: false,
    torch_dtype: "bfloat16",
    converted_from: metadata.string("general.name", "GGUF"),
    ...logSnrKeys(metadata, own, refuse),
  };
}

function logSnrKeys(
  metadata: GgufFile["metadata"],
  own: (name: string) => string,
  refuse: (message: string) => never,
): Record<string, unknown> {
  if (!metadata.bool(own("log_snr_conditioning"), false)) return {};
  const min = metadata.number(own("min_log_snr"), null);
  const max = metadata.number(own("max_log_snr"), null);
  if (min === null || max === null || !(min < max)) {
    refuse(`log_snr_conditioning needs min_log_snr < max_log_snr, found ${min} and ${max}`);
  }
  return { log_snr_conditioning: true, min_log_snr: min, max_log_snr: max };
}

/** Writes config.json and model.safetensors into the empty folder `dir`. */
export function writeGgufDrafter({ file, tensors, config }: GgufDrafter, dir: string): void {
  const plan = [...tensors].map(([name, { shape }]) => ({ name, dtype: "BF16" as const, shape }));
  const writer = new SafetensorsWriter(path.join(dir, "model.safetensors"), plan);
  const fd = openSync(file.file, "r");
  try {
    assertUnchanged(fd, file);
    for (const [name, tensor] of tensors) {
      const bytes = new Uint8Array(tensor.bytes);
      readExact(fd, file.file, bytes, tensor.offset);
      const dtype = FLOATS.get(tensor.type.name) ?? "F32";
      writer.write(name, dtype === "BF16" ? bytes : encodeFloats(decodeFloats(bytes, dtype), "BF16"));
    }
    assertUnchanged(fd, file);
    writer.finish();
  } finally {
    writer.close();
    closeSync(fd);
  }
  writeDurably(path.join(dir, "config.json"), `${JSON.stringify(config)}\n`);
}
