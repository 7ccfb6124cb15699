/** z-lab's layout of DFlash and DFlash 2 heads: the drafter's keys in `dflash_config` or at the top. drafters.md §4. */
import type { ConfigSection } from "../../checkpoint/config-json.ts";
import { DrafterError } from "../errors.ts";
import type { ConvSettings, DFlashSettings, LayerMask } from "../settings.ts";
import { architectures, type DrafterFolder, layerIds, readRope, requireKeys } from "./folder.ts";

const BACKBONE = [
  "hidden_size",
  "vocab_size",
  "num_hidden_layers",
  "intermediate_size",
  "num_attention_heads",
  "num_key_value_heads",
  "head_dim",
  "max_position_embeddings",
];

/** True when the checkpoint has, or claims to have, a candidate selector. */
export function isDFlash2(config: ConfigSection): boolean {
  const nested = config.section("dflash_config");
  return architectures(config).includes("DFlash2DraftModel") || (nested?.int("selector_rank", 0) ?? 0) > 0;
}

export function readDFlash(folder: DrafterFolder): DFlashSettings {
  const { dir, config } = folder;
  requireKeys(dir, config, BACKBONE, "a DFlash drafter");
  const own = sectionOf(config);
  const blockAt = own("block_size");
  const tapsAt = own("target_layer_ids");
  const missing = [!blockAt.has("block_size") && "block_size", !tapsAt.has("target_layer_ids") && "target_layer_ids"];
  const named = missing.filter((key) => key !== false);
  if (named.length > 0) {
    throw new DrafterError(dir, "missing-keys", `a DFlash drafter needs ${named.join(", ")} in ${config.file}`);
  }
  const rank = own("selector_rank").int("selector_rank", 0);
  const topK = own("selector_top_k").int("selector_top_k", 0);
  const second = isDFlash2(config);
  if (second && (rank < 1 || topK < 1)) {
    const message = `a DFlash 2 drafter needs selector_rank and selector_top_k, found ${rank} and ${topK}`;
    throw new DrafterError(dir, "selector", message);
  }
  const headDim = config.size("head_dim");
  return {
    kind: second ? "dflash2" : "dflash",
    layout: "z-lab",
    backbone: {
      family: "qwen",
      hidden: config.size("hidden_size"),
      intermediate: config.size("intermediate_size"),
      heads: config.size("num_attention_heads"),
      kvHeads: config.size("num_key_value_heads"),
      headDim,
      eps: config.number("rms_norm_eps", 1e-6),
      rope: readRope(config, headDim),
      scale: headDim ** -0.5,
      attentionBias: false,
      gatedQ: false,
      offsetNorms: false,
      valuesFromKeys: false,
      sinks: false,
      layers: layerMasks(config),
      conv: second ? readConv(own) : null,
    },
    taps: layerIds(tapsAt, "target_layer_ids"),
    block: blockAt.size("block_size"),
    maskId: own("mask_token_id").int("mask_token_id", 0),
    logitsStart: 1,
    vocab: config.size("vocab_size"),
    softcap: own("final_logit_softcapping").number("final_logit_softcapping", null),
    embedScale: own("input_embedding_scale").number("input_embedding_scale", 1),
    outputMultiplier: own("output_multiplier").number("output_multiplier", 1),
    selector: second ? { rank, topK } : null,
  };
}

/** Where a key of DFlash is read: in `dflash_config` first, then at the top. */
function sectionOf(config: ConfigSection): (key: string) => ConfigSection {
  const nested = config.section("dflash_config");
  return (key) => (nested?.has(key) ? nested : config);
}

function readConv(own: (key: string) => ConfigSection): ConvSettings | null {
  const taps = own("conv_kernel_size").int("conv_kernel_size", 0);
  if (taps === 0) return null;
  return { taps, group: own("conv_group_size").size("conv_group_size", 16) };
}

/** A config that says nothing of causality means it on sliding layers; one that does means all layers. */
function layerMasks(config: ConfigSection): LayerMask[] {
  const count = config.size("num_hidden_layers");
  const types = config.strings("layer_types", null) ?? Array.from({ length: count }, () => "full_attention");
  if (types.length !== count) config.fail("layer_types", `names ${types.length} layers of ${count}`);
  const unknown = types.find((type) => type !== "full_attention" && type !== "sliding_attention");
  if (unknown !== undefined) config.fail("layer_types", `unknown layer type ${JSON.stringify(unknown)}`);
  const stated = config.bool("is_causal", null);
  return types.map((type) => {
    const slides = type === "sliding_attention";
    return {
      window: slides ? config.size("sliding_window") : null,
      causal: stated ?? slides,
      windowsBlock: false,
    };
  });
}
