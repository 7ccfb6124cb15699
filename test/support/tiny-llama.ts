/**
 * A llama of random weights, small enough that a forward costs little beside the work of the host. The same seed gives
 * the same bytes everywhere. It has no tokenizer: it is fed ids.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type PlannedTensor, SafetensorsWriter } from "../../src/checkpoint/safetensors-writer.ts";

export interface TinyShape {
  readonly layers: number;
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly vocab: number;
}

export const TINY_SHAPE: TinyShape = { layers: 4, hidden: 64, intermediate: 128, heads: 4, kvHeads: 2, vocab: 256 };

/** Writes config.json and model.safetensors (float32, untied head) into the existing, empty `dir`. */
export function writeTinyLlama(dir: string, seed = 1, shape = TINY_SHAPE): void {
  const { layers, hidden, intermediate, heads, kvHeads, vocab } = shape;
  const config = {
    model_type: "llama",
    architectures: ["LlamaForCausalLM"],
    hidden_size: hidden,
    intermediate_size: intermediate,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    vocab_size: vocab,
    max_position_embeddings: 4096,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    tie_word_embeddings: false,
    bos_token_id: 0,
    eos_token_id: vocab - 1,
  };
  writeFileSync(join(dir, "config.json"), JSON.stringify(config, null, 1));

  const kv = (hidden / heads) * kvHeads;
  const matrix = (name: string, rows: number, columns: number): PlannedTensor => ({
    name: `${name}.weight`,
    dtype: "F32",
    shape: [rows, columns],
  });
  const vector = (name: string): PlannedTensor => ({ name: `${name}.weight`, dtype: "F32", shape: [hidden] });
  const plan = [matrix("model.embed_tokens", vocab, hidden), matrix("lm_head", vocab, hidden), vector("model.norm")];
  for (let i = 0; i < layers; i++) {
    const at = `model.layers.${i}`;
    plan.push(
      vector(`${at}.input_layernorm`),
      vector(`${at}.post_attention_layernorm`),
      matrix(`${at}.self_attn.q_proj`, hidden, hidden),
      matrix(`${at}.self_attn.k_proj`, kv, hidden),
      matrix(`${at}.self_attn.v_proj`, kv, hidden),
      matrix(`${at}.self_attn.o_proj`, hidden, hidden),
      matrix(`${at}.mlp.gate_proj`, intermediate, hidden),
      matrix(`${at}.mlp.up_proj`, intermediate, hidden),
      matrix(`${at}.mlp.down_proj`, hidden, intermediate),
    );
  }
  const random = uniform(seed);
  const writer = new SafetensorsWriter(join(dir, "model.safetensors"), plan);
  for (const { name, shape } of plan) {
    const [rows = 1, columns] = shape;
    // Weights of unit gain; the vectors are norms.
    const width = columns === undefined ? 0 : Math.sqrt(3 / columns);
    const values = Float32Array.from({ length: rows * (columns ?? 1) }, () =>
      columns === undefined ? 1 : width * (2 * random() - 1),
    );
    writer.write(name, new Uint8Array(values.buffer));
  }
  writer.finish();
}

/** Uniform numbers in [0, 1): a 32-bit linear congruential generator (Numerical Recipes, ranqd1). */
function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
