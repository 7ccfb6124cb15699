/** The backbone's parts from a drafter's tensors. */
import { NONE } from "../mlx/array.ts";
import type { Compute } from "../nn/compute.ts";
import type { Rope } from "../nn/rope.ts";
import { BlockAttention } from "./attention.ts";
import { Backbone } from "./backbone.ts";
import { DynamicConv } from "./conv.ts";
import { type DraftLayer, JoinedLayer, PlainLayer } from "./layer.ts";
import { PackedAttention } from "./packed-attention.ts";
import type { DrafterSettings, LayerMask } from "./settings.ts";
import type { DrafterWeights } from "./weights.ts";

type BackboneCompute = Pick<Compute, "linear" | "norm" | "projectionAdd" | "feedForward" | "contextAttention">;

/** @param windowTokens context rows that a head without any window of its own attends to; 0: all */
export function buildBackbone(
  settings: DrafterSettings,
  weights: DrafterWeights,
  compute: BackboneCompute,
  rope: Rope,
  windowTokens: number,
): Backbone {
  const { backbone } = settings;
  const parts = {
    rope,
    fuse: compute.linear(weights.linear(["fc"], false)),
    contextNorm: compute.norm(weights.norm("hidden_norm")),
    layers: backbone.layers.map((mask, i) => buildLayer(`layers.${i}`, mask, settings, weights, compute, rope)),
    finalNorm: compute.norm(weights.norm("norm")),
  };
  const bidirectional = backbone.layers.every((mask) => mask.window === null && !mask.causal);
  const limited = settings.kind === "dspark" && bidirectional && windowTokens > 0;
  // DSpark contexts keep all rows, so that a shared prefix can be cut anywhere; DFlash's sliding layers forget.
  const visible = backbone.layers.map(({ window }) =>
    settings.kind === "dspark" || window === null ? null : window - 1,
  );
  return new Backbone(backbone, parts, limited ? windowTokens : null, visible);
}

function buildLayer(
  at: string,
  mask: LayerMask,
  { backbone }: DrafterSettings,
  weights: DrafterWeights,
  compute: BackboneCompute,
  rope: Rope,
): DraftLayer {
  const { attentionBias, sinks, family, conv } = backbone;
  const projection = (...names: readonly string[]) =>
    weights.linear(
      names.map((name) => `${at}.self_attn.${name}`),
      attentionBias,
    );
  const mlp = (name: string) => weights.linear([`${at}.mlp.${name}`], false);
  const norm = (name: string) => weights.norm(`${at}.${name}`);
  const queries = () => projection("q_proj");
  const keyValue = () => (backbone.valuesFromKeys ? projection("k_proj") : projection("k_proj", "v_proj"));
  const sinkBias = () => (sinks ? weights.array(`${at}.self_attn.attention_sink_bias`) : NONE);
  const { contextAttention } = compute;
  const joined = contextAttention !== null && family === "qwen" && conv === null;
  const packed = (make: NonNullable<typeof contextAttention>) => {
    const block = make({
      ...backbone,
      norm: joined ? norm("input_layernorm") : null,
      q: queries(),
      keyValue: keyValue(),
      qNorm: norm("self_attn.q_norm"),
      kNorm: norm("self_attn.k_norm"),
      gated: backbone.gatedQ,
      valueEps: family === "gemma4" ? backbone.eps : null,
      sinks: sinkBias(),
    });
    return new PackedAttention(backbone, mask, block, joined ? null : compute.linear(projection("o_proj")));
  };
  if (contextAttention !== null && joined) {
    return new JoinedLayer({
      attention: packed(contextAttention),
      output: compute.projectionAdd(projection("o_proj")),
      feedForward: compute.feedForward({
        norm: norm("post_attention_layernorm"),
        gate: mlp("gate_proj"),
        up: mlp("up_proj"),
        down: mlp("down_proj"),
        activation: "silu",
      }),
    });
  }
  const stock = () =>
    new BlockAttention(backbone, mask, rope, {
      query: compute.linear(queries()),
      keyValue: compute.linear(keyValue()),
      output: compute.linear(projection("o_proj")),
      queryNorm: norm("self_attn.q_norm"),
      keyNorm: norm("self_attn.k_norm"),
      sinks: sinkBias(),
    });
  const convolution = (name: string) => {
    if (conv === null) return null;
    const kernel = compute.linear(weights.linear([`${at}.${name}.kernel_projection`], false, false));
    return new DynamicConv(conv, weights.array(`${at}.${name}.base_kernel`), kernel);
  };
  const gemma = () => ({
    beforeMlp: norm("pre_feedforward_layernorm"),
    afterMlp: norm("post_feedforward_layernorm"),
    factor: weights.array(`${at}.layer_scalar`),
  });
  return new PlainLayer({
    inputNorm: norm("input_layernorm"),
    postAttentionNorm: norm("post_attention_layernorm"),
    attention: contextAttention === null ? stock() : packed(contextAttention),
    gate: compute.linear(mlp("gate_proj")),
    up: compute.linear(mlp("up_proj")),
    down: compute.linear(mlp("down_proj")),
    gemma: family === "gemma4" ? gemma() : null,
    attentionConv: convolution("attention_conv"),
    mlpConv: convolution("mlp_conv"),
  });
}
