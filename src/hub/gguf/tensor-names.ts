/**
 * GGUF tensor names → the names that Hugging Face and MLX use, and which rows are stored permuted. Unknown tensors are
 * refused: dropping one silently would change the model. Source: models-dense.md §8.3.
 */
import { CheckpointError } from "../../checkpoint/errors.ts";
import type { GgufSet } from "../../checkpoint/gguf-split.ts";
import type { GgufModelConfig } from "./model-config.ts";

const TOP: ReadonlyMap<string, string> = new Map([
  ["token_embd.weight", "model.embed_tokens.weight"],
  ["output_norm.weight", "model.norm.weight"],
  ["output.weight", "lm_head.weight"],
]);
const LAYER: ReadonlyMap<string, string> = new Map([
  ["attn_norm", "input_layernorm"],
  ["ffn_norm", "post_attention_layernorm"],
  ["attn_q", "self_attn.q_proj"],
  ["attn_k", "self_attn.k_proj"],
  ["attn_v", "self_attn.v_proj"],
  ["attn_output", "self_attn.o_proj"],
  ["attn_q_norm", "self_attn.q_norm"],
  ["attn_k_norm", "self_attn.k_norm"],
  ["ffn_gate", "mlp.gate_proj"],
  ["ffn_up", "mlp.up_proj"],
  ["ffn_down", "mlp.down_proj"],
]);
const PROJECTIONS = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

export interface MappedName {
  /** Target parameter name, with `.weight` or `.bias`. */
  readonly name: string;
  /** Rows of one attention head whose pairs are interleaved in the file; null: rows are in order. */
  readonly interleavedHeadRows: number | null;
}

/**
 * Maps every tensor of the file; those that the model does not use are left out.
 * @throws CheckpointError for unknown tensors and for missing ones
 */
export function mapTensorNames(set: GgufSet, config: GgufModelConfig, file: string): Map<string, MappedName> {
  const out = new Map<string, MappedName>();
  for (const source of set.tensors.keys()) {
    if (source === "rope_freqs.weight" || /^blk\.\d+\.attn_rot_embd$/.test(source.replace(/\.weight$/, ""))) continue;
    const mapped = mapName(source, config);
    if (mapped === null) {
      throw new CheckpointError({
        file: set.tensors.get(source)?.file ?? file,
        tensor: source,
        check: "set",
        message: `is not part of a ${config.architecture} model as it is known here`,
      });
    }
    out.set(source, mapped);
  }
  const missing = requiredNames(config).filter((name) => !out.has(name));
  const [first] = missing;
  if (first !== undefined) {
    const more = missing.length > 1 ? ` (and ${missing.length - 1} more)` : "";
    throw new CheckpointError({ file, tensor: first, check: "set", message: `is missing${more}` });
  }
  return out;
}

function mapName(source: string, config: GgufModelConfig): MappedName | null {
  const top = TOP.get(source);
  if (top !== undefined) return { name: top, interleavedHeadRows: null };
  const match = /^blk\.(0|[1-9]\d*)\.([a-z_]+)\.(weight|bias)$/.exec(source);
  if (match === null) return null;
  const [, index = "", part = "", kind = ""] = match;
  const target = LAYER.get(part);
  if (target === undefined || Number(index) >= config.layers) return null;
  if (kind === "bias" && !allowsBias(part, config)) return null;
  if (part.endsWith("_norm") && part.startsWith("attn_") && part !== "attn_norm" && config.architecture !== "qwen3")
    return null;
  // Only llama files interleave the rotated pairs, in q and k alone.
  const interleaved = config.architecture === "llama" && (part === "attn_q" || part === "attn_k");
  return { name: `model.layers.${index}.${target}.${kind}`, interleavedHeadRows: interleaved ? config.headDim : null };
}

function allowsBias(part: string, config: GgufModelConfig): boolean {
  if (config.architecture === "qwen2") return part === "attn_q" || part === "attn_k" || part === "attn_v";
  return config.attentionBias && ["attn_q", "attn_k", "attn_v", "attn_output"].includes(part);
}

function requiredNames(config: GgufModelConfig): string[] {
  const out = ["token_embd.weight", "output_norm.weight"];
  for (let i = 0; i < config.layers; i++) {
    const parts = ["attn_norm", "ffn_norm", ...PROJECTIONS];
    if (config.architecture === "qwen3") parts.push("attn_q_norm", "attn_k_norm");
    out.push(...parts.map((part) => `blk.${i}.${part}.weight`));
    out.push(...PROJECTIONS.filter((part) => allowsBias(part, config)).map((part) => `blk.${i}.${part}.bias`));
  }
  return out;
}
