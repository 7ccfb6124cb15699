/** A complete one-layer llama in GGUF, whose keys and tensors a test may change, and a larger one to interrupt. */
import { type GgufField, type GgufTensorSpec, ggufBytes } from "../../checkpoint/gguf-writer.ts";

export type Keys = Record<string, GgufField | undefined>;
export type Tensors = Record<string, Omit<GgufTensorSpec, "name"> | undefined>;

const HIDDEN = 64;
const TOKENS = ["a", "b", "ab", "<|end|>", "<note>"];

const KEYS: Keys = {
  "general.architecture": { string: "llama" },
  "llama.block_count": { u32: 1 },
  "llama.embedding_length": { u32: HIDDEN },
  "llama.feed_forward_length": { u32: HIDDEN },
  "llama.context_length": { u32: 128 },
  "llama.attention.head_count": { u32: 4 },
  "llama.attention.head_count_kv": { u32: 2 },
  "llama.attention.layer_norm_rms_epsilon": { f32: 1e-5 },
  "tokenizer.ggml.model": { string: "gpt2" },
  "tokenizer.ggml.pre": { string: "smollm" },
  "tokenizer.ggml.tokens": { strings: TOKENS },
  "tokenizer.ggml.token_type": { ints: [1, 1, 1, 3, 4] },
  "tokenizer.ggml.merges": { strings: ["a b"] },
  "tokenizer.ggml.bos_token_id": { u32: 3 },
  "tokenizer.ggml.eos_token_id": { u32: 3 },
};

export function f32Tensor(...shape: number[]): Omit<GgufTensorSpec, "name"> {
  const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i);
  return { shape, type: 0, data: new Uint8Array(values.buffer) };
}

function tensors(hidden: number, rows: number): Tensors {
  const p = "blk.0.";
  return {
    "token_embd.weight": f32Tensor(rows, hidden),
    "output_norm.weight": f32Tensor(hidden),
    [`${p}attn_norm.weight`]: f32Tensor(hidden),
    [`${p}ffn_norm.weight`]: f32Tensor(hidden),
    [`${p}attn_q.weight`]: f32Tensor(hidden, hidden),
    [`${p}attn_k.weight`]: f32Tensor(hidden / 2, hidden),
    [`${p}attn_v.weight`]: f32Tensor(hidden / 2, hidden),
    [`${p}attn_output.weight`]: f32Tensor(hidden, hidden),
    [`${p}ffn_gate.weight`]: f32Tensor(hidden, hidden),
    [`${p}ffn_up.weight`]: f32Tensor(hidden, hidden),
    [`${p}ffn_down.weight`]: f32Tensor(hidden, hidden),
  };
}

/** The tiny model with some keys and tensors replaced, or removed by undefined. */
export function tinyGguf(keys: Keys = {}, changed: Tensors = {}): Buffer {
  return build({ ...KEYS, ...keys }, { ...tensors(HIDDEN, 8), ...changed });
}

/** Some 50 MB of weights in many pieces: long enough to be interrupted in the middle. */
export function largeGguf(): Buffer {
  return build(
    { ...KEYS, "llama.embedding_length": { u32: 512 }, "llama.feed_forward_length": { u32: 512 } },
    tensors(512, 24_000),
  );
}

function build(keys: Keys, parts: Tensors): Buffer {
  const fields = Object.entries(keys).flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const]));
  const specs = Object.entries(parts).flatMap(([name, spec]) => (spec === undefined ? [] : [{ name, ...spec }]));
  return ggufBytes(fields, specs);
}
