/** Building blocks shared by the dense families: the parameter names that all of them use, with the shapes as arguments. */
import type { ConfigSection } from "../checkpoint/config-json.ts";
import type { Compute } from "../nn/compute.ts";
import type { RopeSpec } from "../nn/rope.ts";
import type { NormWeights } from "../nn/weights.ts";
import { DecoderModel, type PreNormLayer } from "./decoder.ts";
import type { TargetModel } from "./target.ts";
import type { WeightReader } from "./weight-reader.ts";

/** The shape of a dense decoder, as a family reads it from its config. */
export interface DenseShape {
  readonly hidden: number;
  readonly intermediate: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly eps: number;
  readonly vocab: number;
  readonly maxPositions: number | null;
  readonly rope: RopeSpec;
  readonly bias: { readonly qkv: boolean; readonly output: boolean; readonly mlp: boolean };
  /** Per-head norms on queries and keys. */
  readonly headNorms: boolean;
  /** Sliding window of layer i; null: full attention. */
  window(layer: number): number | null;
}

/** Tied when the config says so; where it is silent, when there is no head of its own. */
export function isTied(config: ConfigSection, weights: WeightReader): boolean {
  const hasHead = weights.has("lm_head.weight");
  return config.bool("tie_word_embeddings", !hasHead);
}

/** Tensors that converted checkpoints carry without need. */
export function dropsCommon(name: string, config: ConfigSection): boolean {
  if (name.includes("rotary_emb")) return true;
  return name.startsWith("lm_head.") && config.bool("tie_word_embeddings", true);
}

export function buildDense(
  family: string,
  shape: DenseShape,
  config: ConfigSection,
  weights: WeightReader,
  compute: Compute,
): TargetModel {
  const { hidden, vocab, eps } = shape;
  const embedding = compute.embedding(weights.matrix("model.embed_tokens", vocab, hidden));
  const layers = Array.from({ length: shape.layers }, (_, i) => denseLayer(i, shape, weights, compute));
  const norm = { weight: weights.vector("model.norm.weight", hidden), eps };
  const head = isTied(config, weights) ? null : weights.linear("lm_head", vocab, hidden, false);
  return new DecoderModel({
    family,
    vocabSize: vocab,
    hiddenSize: hidden,
    maxPositions: shape.maxPositions,
    embedding,
    layers,
    head: compute.head(norm, head, embedding),
  });
}

function denseLayer(index: number, shape: DenseShape, weights: WeightReader, compute: Compute): PreNormLayer {
  const { hidden, intermediate, heads, kvHeads, headDim, eps, bias } = shape;
  const at = `model.layers.${index}`;
  const norm = (name: string, size: number): NormWeights => ({
    weight: weights.vector(`${at}.${name}.weight`, size),
    eps,
  });
  return {
    attention: compute.selfAttention({
      norm: norm("input_layernorm", hidden),
      q: weights.linear(`${at}.self_attn.q_proj`, heads * headDim, hidden, bias.qkv),
      k: weights.linear(`${at}.self_attn.k_proj`, kvHeads * headDim, hidden, bias.qkv),
      v: weights.linear(`${at}.self_attn.v_proj`, kvHeads * headDim, hidden, bias.qkv),
      o: weights.linear(`${at}.self_attn.o_proj`, hidden, heads * headDim, bias.output),
      heads,
      kvHeads,
      headDim,
      scale: headDim ** -0.5,
      rope: shape.rope,
      qNorm: shape.headNorms ? norm("self_attn.q_norm", headDim) : null,
      kNorm: shape.headNorms ? norm("self_attn.k_norm", headDim) : null,
    }),
    feedForward: compute.feedForward({
      norm: norm("post_attention_layernorm", hidden),
      gate: weights.linear(`${at}.mlp.gate_proj`, intermediate, hidden, bias.mlp),
      up: weights.linear(`${at}.mlp.up_proj`, intermediate, hidden, bias.mlp),
      down: weights.linear(`${at}.mlp.down_proj`, hidden, intermediate, bias.mlp),
      activation: "silu",
    }),
    state: { kvHeads, headDim, window: shape.window(index) },
  };
}
