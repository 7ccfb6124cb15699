/**
 * DeepSpec's own layout of DSpark heads (qwen3 and gemma4 backbones, Ornith's qwen3_5), which all other DSpark layouts
 * are brought to. The configs are copies of the target's with keys added: widths are taken from the tensors, which cannot
 * be wrong about themselves. drafters.md §2, §3 and §3.1.
 */
import type { ConfigSection } from "../../checkpoint/config-json.ts";
import { DrafterError } from "../errors.ts";
import type { BackboneSettings, DSparkSettings, LayerMask, MarkovType } from "../settings.ts";
import { type DrafterFolder, FULL, layerIds, proportionalRope, readRope, requireKeys, shapeOf } from "./folder.ts";

const REQUIRED = [
  "hidden_size",
  "vocab_size",
  "num_hidden_layers",
  "intermediate_size",
  "num_attention_heads",
  "block_size",
  "mask_token_id",
  "target_layer_ids",
];
const MARKOV_TYPES: ReadonlySet<string> = new Set(["vanilla", "gated", "rnn"]);
const GEMMA_SOFTCAP = 30;
/** Rank of the Markov head where the config is silent. */
const RANK = 256;

/** What a layout knows beside the config of DeepSpec's form. */
export interface DSparkFacts {
  readonly layout: string;
  /** Mask of layer i. */
  readonly mask: (layer: number) => LayerMask;
  readonly logitsStart: number;
}

/** The native layout. */
export function readDeepSpec(folder: DrafterFolder): DSparkSettings {
  return readDSpark(folder, folder.config, {
    layout: "deepspec",
    mask: () => FULL,
    logitsStart: statedLogitsStart(folder.config),
  });
}

/** `logits_start`, else whether the anchor's slot predicts, else the anchor's. */
export function statedLogitsStart(config: ConfigSection): number {
  return config.int("logits_start", config.bool("sample_from_anchor", true) ? 0 : 1);
}

/** @throws DrafterError, or CheckpointError for values of the wrong type */
export function readDSpark(folder: DrafterFolder, config: ConfigSection, facts: DSparkFacts): DSparkSettings {
  const { dir } = folder;
  requireKeys(dir, config, REQUIRED, "a DSpark drafter");
  const family = familyOf(dir, config);
  const backbone = readBackbone(folder, config, family, facts);
  const block = config.size("block_size");
  if (facts.logitsStart < 0 || facts.logitsStart >= block) {
    config.fail("logits_start", `${facts.logitsStart} is no slot of a block of ${block}`);
  }
  const markov = readMarkov(folder, config);
  const defaultCap =
    family === "gemma4" && !Object.hasOwn(config.json, "final_logit_softcapping") ? GEMMA_SOFTCAP : null;
  const ownHead = shapeOf(folder, "lm_head.weight") !== null;
  return {
    kind: "dspark",
    layout: facts.layout,
    backbone,
    taps: layerIds(config, "target_layer_ids"),
    block,
    maskId: config.int("mask_token_id"),
    logitsStart: facts.logitsStart,
    vocab: config.size("vocab_size"),
    softcap: config.number("final_logit_softcapping", defaultCap),
    ownEmbed: shapeOf(folder, "embed_tokens.weight") !== null,
    ownHead,
    draftVocab: readDraftVocab(folder, config, ownHead),
    idLimit: readIdLimit(config),
    markov,
    confidence: readConfidence(folder, config, markov !== null),
    logSnr: readLogSnr(dir, config),
  };
}

function familyOf(dir: string, config: ConfigSection): BackboneSettings["family"] {
  const type = config.string("model_type", "");
  if (type.includes("gemma4")) return "gemma4";
  if (type.includes("qwen3")) return "qwen";
  throw new DrafterError(
    dir,
    "family",
    `model_type ${JSON.stringify(type)} is no drafter family; supported are qwen3 and gemma4 (--mode lookup works with any target)`,
  );
}

function readBackbone(
  folder: DrafterFolder,
  config: ConfigSection,
  family: BackboneSettings["family"],
  facts: DSparkFacts,
): BackboneSettings {
  const width = (name: string, axis: number) => shapeOf(folder, `layers.0.${name}.weight`)?.[axis] ?? null;
  const hidden: number = shapeOf(folder, "norm.weight")?.[0] ?? config.size("hidden_size");
  const gemma = family === "gemma4";
  const stated = config.size("head_dim", gemma ? 256 : hidden / config.size("num_attention_heads"));
  const headDim = width("self_attn.q_norm", 0) ?? (gemma ? config.size("global_head_dim", 512) : stated);
  const outputs = width("self_attn.o_proj", 1) ?? config.size("num_attention_heads") * headDim;
  const keys = width("self_attn.k_proj", 0) ?? config.size("num_key_value_heads", 8) * headDim;
  const type = config.string("model_type", "");
  const likeQwen35 = type === "qwen3_5" || config.bool("enable_qwen35_gated_q_proj", false);
  const partial = config.section("rope_parameters")?.number("partial_rotary_factor", 1) ?? 1;
  const layers = Array.from({ length: config.size("num_hidden_layers") }, (_, i) => facts.mask(i));
  return {
    family,
    hidden,
    intermediate: width("mlp.gate_proj", 0) ?? config.size("intermediate_size"),
    heads: outputs / headDim,
    kvHeads: keys / headDim,
    headDim,
    eps: config.number("rms_norm_eps", 1e-6),
    rope: gemma ? gemmaRope(config, headDim) : readRope(config, likeQwen35 ? Math.floor(headDim * partial) : headDim),
    scale: gemma ? 1 : headDim ** -0.5,
    attentionBias: config.bool("attention_bias", false),
    gatedQ: width("self_attn.q_proj", 0) === 2 * outputs,
    offsetNorms: type === "qwen3_5",
    valuesFromKeys: gemma && config.bool("attention_k_eq_v", true),
    sinks: config.bool("attention_sink_bias", false),
    layers,
    conv: null,
  };
}

function gemmaRope(config: ConfigSection, headDim: number) {
  const full = config.section("rope_parameters")?.section("full_attention") ?? null;
  const theta = full?.number("rope_theta", 1e6) ?? 1e6;
  return proportionalRope(headDim, theta, full?.number("partial_rotary_factor", 0.25) ?? 0.25);
}

/** Our own key: where ids are sorted by frequency, a head over the first of them costs less and misses little. */
function readIdLimit(config: ConfigSection): number | null {
  if (!config.has("draft_id_limit")) return null;
  const limit = config.size("draft_id_limit");
  const vocab = config.size("vocab_size");
  if (limit > vocab) config.fail("draft_id_limit", `${limit} of a vocabulary of ${vocab}`);
  if (config.size("draft_vocab_size", vocab) !== vocab) {
    config.fail("draft_id_limit", "ids of a reduced vocabulary are not in the target's order");
  }
  return limit === vocab ? null : limit;
}

/** The rank is the tensor's; a config that states one promises the tensors. */
function readMarkov(folder: DrafterFolder, config: ConfigSection): DSparkSettings["markov"] {
  const stored = shapeOf(folder, "markov_head.markov_w1.weight")?.[1] ?? null;
  const rank = stored ?? config.int("markov_rank", RANK);
  if (rank === 0) return null;
  const type = config.string("markov_head_type", "vanilla");
  if (!isMarkovType(type)) return config.fail("markov_head_type", `unknown Markov head ${JSON.stringify(type)}`);
  return { type, rank };
}

function isMarkovType(type: string): type is MarkovType {
  return MARKOV_TYPES.has(type);
}

function readConfidence(folder: DrafterFolder, config: ConfigSection, markov: boolean): DSparkSettings["confidence"] {
  const stored = shapeOf(folder, "confidence_head.proj.weight") !== null;
  if (!config.bool("enable_confidence_head", stored)) return null;
  return markov && config.bool("confidence_head_with_markov", true) ? "hidden+markov" : "hidden";
}

/** Rows of a reduced head. Ids of such a head mean nothing without the table that maps them. */
function readDraftVocab(folder: DrafterFolder, config: ConfigSection, ownHead: boolean): number | null {
  const { dir } = folder;
  const vocab = config.size("vocab_size");
  const declared = config.size("draft_vocab_size", null);
  const mapped = shapeOf(folder, "d2t") !== null;
  if (mapped && declared === null) {
    throw new DrafterError(dir, "vocabulary-map", "d2t is there but no draft_vocab_size: ids could not be mapped");
  }
  if (declared === null || (declared === vocab && !mapped)) return null;
  if (!mapped) {
    const message = `draft_vocab_size ${declared} of ${vocab} needs the tensor d2t: ids could not be mapped`;
    throw new DrafterError(dir, "vocabulary-map", message);
  }
  if (!ownHead) {
    throw new DrafterError(dir, "vocabulary-map", `draft_vocab_size ${declared} needs a lm_head.weight of its own`);
  }
  return declared;
}

function readLogSnr(dir: string, config: ConfigSection): DSparkSettings["logSnr"] {
  if (!config.bool("log_snr_conditioning", false)) return null;
  const min = config.number("min_log_snr", null);
  const max = config.number("max_log_snr", null);
  if (min !== null && max !== null && min < max) return { min, max };
  throw new DrafterError(
    dir,
    "log-snr",
    `log_snr_conditioning needs min_log_snr < max_log_snr, found ${min} and ${max}`,
  );
}
