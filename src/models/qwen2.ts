/** Qwen2: llama's graph with biased q, k and v. Window keys of its configs have no effect. models-dense.md §3.2, §6.2. */
import type { ConfigSection } from "../checkpoint/config-json.ts";
import { buildDense, type DenseShape, dropsCommon } from "./dense-layers.ts";
import type { Family } from "./family.ts";
import { readRope } from "./rope-config.ts";

export const qwen2: Family = {
  name: "qwen2",
  modelTypes: ["qwen2"],
  build: (config, weights, compute) => buildDense("qwen2", readShape(config), config, weights, compute),
  drops: dropsCommon,
};

function readShape(config: ConfigSection): DenseShape {
  const hidden = config.size("hidden_size");
  const heads = config.size("num_attention_heads");
  const headDim = hidden / heads;
  return {
    hidden,
    heads,
    headDim,
    layers: config.size("num_hidden_layers"),
    intermediate: config.size("intermediate_size"),
    kvHeads: config.size("num_key_value_heads"),
    eps: config.number("rms_norm_eps"),
    vocab: config.size("vocab_size"),
    maxPositions: config.size("max_position_embeddings", 32768),
    rope: readRope(config, headDim, 1_000_000),
    bias: { qkv: true, output: false, mlp: false },
    headNorms: false,
    window: () => null,
  };
}
