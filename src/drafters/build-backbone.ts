/** The backbone's parts from a drafter's tensors. */
import { NONE } from "../mlx/array.ts";
import type { Compute } from "../nn/compute.ts";
import type { Rope } from "../nn/rope.ts";
import { BlockAttention } from "./attention.ts";
import { Backbone } from "./backbone.ts";
import { DynamicConv } from "./conv.ts";
import { DraftLayer } from "./layer.ts";
import type { DrafterSettings, LayerMask } from "./settings.ts";
import type { DrafterWeights } from "./weights.ts";

/** @param windowTokens context rows that a head without any window of its own attends to; 0: all */
export function buildBackbone(
  settings: DrafterSettings,
  weights: DrafterWeights,
  compute: Pick<Compute, "linear">,
  rope: Rope,
  windowTokens: number,
): Backbone {
  const { backbone } = settings;
  const parts = {
    rope,
    fuse: compute.linear(weights.linear(["fc"], false)),
    contextNorm: weights.norm("hidden_norm"),
    layers: backbone.layers.map((mask, i) => buildLayer(`layers.${i}`, mask, settings, weights, compute, rope)),
    finalNorm: weights.norm("norm"),
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
  compute: Pick<Compute, "linear">,
  rope: Rope,
): DraftLayer {
  const { attentionBias, valuesFromKeys, sinks, family, conv } = backbone;
  const attention = (names: readonly string[]) => {
    const paths = names.map((name) => `${at}.self_attn.${name}`);
    return compute.linear(weights.linear(paths, attentionBias));
  };
  const mlp = (name: string) => compute.linear(weights.linear([`${at}.mlp.${name}`], false));
  const convolution = (name: string) => {
    if (conv === null) return null;
    const kernel = compute.linear(weights.linear([`${at}.${name}.kernel_projection`], false, false));
    return new DynamicConv(conv, weights.array(`${at}.${name}.base_kernel`), kernel);
  };
  const gemma = () => ({
    beforeMlp: weights.norm(`${at}.pre_feedforward_layernorm`),
    afterMlp: weights.norm(`${at}.post_feedforward_layernorm`),
    factor: weights.array(`${at}.layer_scalar`),
  });
  return new DraftLayer({
    inputNorm: weights.norm(`${at}.input_layernorm`),
    postAttentionNorm: weights.norm(`${at}.post_attention_layernorm`),
    attention: new BlockAttention(backbone, mask, rope, {
      query: attention(["q_proj"]),
      keyValue: attention(valuesFromKeys ? ["k_proj"] : ["k_proj", "v_proj"]),
      output: attention(["o_proj"]),
      queryNorm: weights.norm(`${at}.self_attn.q_norm`),
      keyNorm: weights.norm(`${at}.self_attn.k_norm`),
      sinks: sinks ? weights.array(`${at}.self_attn.attention_sink_bias`) : NONE,
    }),
    gate: mlp("gate_proj"),
    up: mlp("up_proj"),
    down: mlp("down_proj"),
    gemma: family === "gemma4" ? gemma() : null,
    attentionConv: convolution("attention_conv"),
    mlpConv: convolution("mlp_conv"),
  });
}
