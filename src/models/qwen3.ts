/** Qwen3: llama's graph with per-head norms on queries and keys and no biases. models-dense.md §3.3, §6.3. */
import type { ConfigSection } from "../checkpoint/config-json.ts";
import { buildDense, type DenseShape, dropsCommon } from "./dense-layers.ts";
import type { Family } from "./family.ts";
import { readRope } from "./rope-config.ts";

export const qwen3: Family = {
  name: "qwen3",
  modelTypes: ["qwen3"],
  build: (config, weights, compute) => buildDense("qwen3", readShape(config), config, weights, compute),
  drops: dropsCommon,
};

function readShape(config: ConfigSection): DenseShape {
  const headDim = config.size("head_dim");
  return {
    hidden: config.size("hidden_size"),
    heads: config.size("num_attention_heads"),
    headDim,
    layers: config.size("num_hidden_layers"),
    intermediate: config.size("intermediate_size"),
    kvHeads: config.size("num_key_value_heads"),
    eps: config.number("rms_norm_eps"),
    vocab: config.size("vocab_size"),
    maxPositions: config.size("max_position_embeddings"),
    rope: readRope(config, headDim, null),
    bias: { qkv: false, output: false, mlp: false },
    headNorms: true,
    window: () => null,
  };
}
