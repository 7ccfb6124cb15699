/** Llama and what shares its graph: SmolLM2, Llama 3 (scaled rotation), MiniCPM5, Mistral. models-dense.md §3.1, §6.1. */
import type { ConfigSection } from "../checkpoint/config-json.ts";
import { buildDense, type DenseShape, dropsCommon } from "./dense-layers.ts";
import type { Family } from "./family.ts";
import { readRope } from "./rope-config.ts";

export const llama: Family = {
  name: "llama",
  modelTypes: ["llama", "mistral", "iquestcoder", "xverse"],
  build: (config, weights, compute) => buildDense("llama", readShape(config), config, weights, compute),
  drops: dropsCommon,
};

function readShape(config: ConfigSection): DenseShape {
  const hidden = config.size("hidden_size");
  const heads = config.size("num_attention_heads");
  const headDim = config.size("head_dim", hidden / heads);
  const layers = config.size("num_hidden_layers");
  const mlpBias = config.bool("mlp_bias", false);
  const attentionBias = config.bool("attention_bias", false);
  return {
    hidden,
    heads,
    headDim,
    layers,
    intermediate: config.size("intermediate_size"),
    kvHeads: config.size("num_key_value_heads", heads),
    eps: config.number("rms_norm_eps"),
    vocab: config.size("vocab_size"),
    maxPositions: config.size("max_position_embeddings", null),
    rope: readRope(config, headDim, 10000),
    bias: { qkv: attentionBias, output: attentionBias, mlp: mlpBias },
    headNorms: false,
    window: windows(config, layers),
  };
}

/** `layer_types` decide which layers slide; a window without them is not used, as in the reference. */
function windows(config: ConfigSection, layers: number): (layer: number) => number | null {
  const types = config.strings("layer_types", null);
  if (types === null) return () => null;
  if (types.length !== layers) config.fail("layer_types", `names ${types.length} layers of ${layers}`);
  const unknown = types.find((type) => type !== "full_attention" && type !== "sliding_attention");
  if (unknown !== undefined) config.fail("layer_types", `unknown layer type ${JSON.stringify(unknown)}`);
  if (!types.includes("full_attention")) config.fail("layer_types", "needs at least one full_attention layer");
  if (!types.includes("sliding_attention")) return () => null;
  const window = config.size("sliding_window");
  return (layer) => (types[layer] === "sliding_attention" ? window : null);
}
