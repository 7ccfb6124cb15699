/**
 * vLLM speculators' layout of DSpark heads: the backbone's keys are nested, taps are counted as inputs of layers, the
 * vocabulary may be reduced, and sliding layers may stand among full ones. drafters.md §3.3.
 */
import type { ConfigSection } from "../../checkpoint/config-json.ts";
import { isJsonObject } from "../../checkpoint/json.ts";
import { DrafterError } from "../errors.ts";
import type { DSparkSettings, LayerMask } from "../settings.ts";
import { readDSpark } from "./deepspec.ts";
import { type DrafterFolder, FULL, layerIds, requireKeys, withKeys } from "./folder.ts";

const BACKBONE = ["hidden_size", "vocab_size", "num_hidden_layers", "intermediate_size", "num_attention_heads"];
/** Layer k's input is the output of layer k − 1. */
export const SPECULATORS_TAP_OFFSET = -1;

export function isSpeculators(config: ConfigSection): boolean {
  return config.has("speculators_model_type") || config.has("speculators_config");
}

/** The names that the config gives the algorithm, without repetition. */
export function speculatorsAlgorithms(config: ConfigSection): string[] {
  const names = [
    config.string("speculators_model_type", null),
    config.section("speculators_config")?.string("algorithm", null) ?? null,
  ];
  return [...new Set(names.filter((name) => name !== null))];
}

/** @param tapOffset added to the ids of the config */
export function readSpeculators(folder: DrafterFolder, tapOffset = SPECULATORS_TAP_OFFSET): DSparkSettings {
  const { dir, config } = folder;
  const nested = config.section("transformer_layer_config");
  if (nested === null) {
    throw new DrafterError(
      dir,
      "missing-keys",
      `the speculators backbone needs transformer_layer_config in ${config.file}`,
    );
  }
  requireKeys(dir, nested, BACKBONE, "the speculators backbone (transformer_layer_config)");
  requireKeys(dir, config, ["block_size", "mask_token_id", "aux_hidden_state_layer_ids"], "a speculators drafter");
  const { transformer_layer_config: _, ...own } = config.json;
  const flat = withKeys(config, {
    model_type: "qwen3",
    num_key_value_heads: nested.size("num_attention_heads"),
    ...nested.json,
    ...own,
    // An export repeats a model_type of its own kind at the top; the backbone's is what counts.
    ...(nested.has("model_type") ? { model_type: nested.string("model_type") } : {}),
    target_layer_ids: layerIds(config, "aux_hidden_state_layer_ids").map((id) => id + tapOffset),
  });
  return readDSpark(folder, flat, {
    layout: "speculators",
    mask: layerMasks(config, nested),
    logitsStart: logitsStart(config),
  });
}

/** Each layer has its own type: full ones see everything in both directions. */
function layerMasks(config: ConfigSection, nested: ConfigSection): (layer: number) => LayerMask {
  const types = nested.strings("layer_types", null) ?? [];
  const window = nested.size("sliding_window", null);
  const slides = types.includes("sliding_attention") && nested.bool("use_sliding_window", false) && window !== null;
  if (!slides) return () => FULL;
  const causal = !config.bool("sliding_window_non_causal", false);
  return (layer) => (types[layer] === "sliding_attention" ? { window, causal, windowsBlock: true } : FULL);
}

function logitsStart(config: ConfigSection): number {
  const block = config.size("block_size");
  const methods = config.section("speculators_config")?.value("proposal_methods");
  const [method] = Array.isArray(methods) ? methods : [];
  const tokens = isJsonObject(method) ? method.speculative_tokens : undefined;
  if (typeof tokens === "number" && Number.isInteger(tokens) && tokens > 0 && tokens <= block) return block - tokens;
  return config.bool("sample_from_anchor", false) ? 0 : 1;
}
