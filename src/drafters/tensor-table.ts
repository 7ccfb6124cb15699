/**
 * The tensors that a drafter's checkpoint must hold, by name with shapes, from its settings; and the check that these
 * and no others are there. drafters.md §2 and §4.
 */
import { isFloatDtype } from "../checkpoint/float-bytes.ts";
import type { TensorLocation } from "../checkpoint/safetensors-set.ts";
import { DrafterError } from "./errors.ts";
import type { BackboneSettings, DFlashSettings, DrafterSettings, DSparkSettings } from "./settings.ts";

export type TensorTable = ReadonlyMap<string, readonly number[]>;

/** Width of the log-SNR features. */
export const SNR_FEATURES = 128;
/** Of the target, or of training: not used. */
const IGNORED: ReadonlySet<string> = new Set(["verifier_norm.weight", "verifier_lm_head.weight", "t2d"]);
/** Offsets of ids, not a parameter. */
const VOCABULARY_MAP = "d2t";
const LISTED = 8;

/** @param targetHidden width of the target's residual stream */
export function tensorTable(settings: DrafterSettings, targetHidden: number): TensorTable {
  const { backbone, taps } = settings;
  const { hidden } = backbone;
  const table = new Map<string, readonly number[]>([
    ["fc.weight", [hidden, taps.length * targetHidden]],
    ["hidden_norm.weight", [hidden]],
    ["norm.weight", [hidden]],
  ]);
  for (let i = 0; i < backbone.layers.length; i++) addLayer(table, `layers.${i}`, backbone);
  if (settings.kind === "dspark") addDSpark(table, settings);
  else addSelector(table, settings);
  return table;
}

function addLayer(table: Map<string, readonly number[]>, at: string, settings: BackboneSettings): void {
  const { hidden, intermediate, heads, kvHeads, headDim } = settings;
  const add = (name: string, shape: readonly number[]) => table.set(`${at}.${name}`, shape);
  const linear = (name: string, out: number, width: number) => {
    add(`self_attn.${name}.weight`, [out, width]);
    if (settings.attentionBias) add(`self_attn.${name}.bias`, [out]);
  };
  add("input_layernorm.weight", [hidden]);
  add("post_attention_layernorm.weight", [hidden]);
  linear("q_proj", heads * headDim * (settings.gatedQ ? 2 : 1), hidden);
  linear("k_proj", kvHeads * headDim, hidden);
  if (!settings.valuesFromKeys) linear("v_proj", kvHeads * headDim, hidden);
  linear("o_proj", hidden, heads * headDim);
  add("self_attn.q_norm.weight", [headDim]);
  add("self_attn.k_norm.weight", [headDim]);
  if (settings.sinks) add("self_attn.attention_sink_bias", [heads]);
  add("mlp.gate_proj.weight", [intermediate, hidden]);
  add("mlp.up_proj.weight", [intermediate, hidden]);
  add("mlp.down_proj.weight", [hidden, intermediate]);
  if (settings.family === "gemma4") {
    add("pre_feedforward_layernorm.weight", [hidden]);
    add("post_feedforward_layernorm.weight", [hidden]);
    add("layer_scalar", [1]);
  }
  if (settings.conv !== null) {
    const { taps, group } = settings.conv;
    for (const name of ["attention_conv", "mlp_conv"]) {
      add(`${name}.base_kernel`, [2, taps, hidden]);
      add(`${name}.kernel_projection.weight`, [(2 * taps * hidden) / group, hidden]);
    }
  }
}

function addDSpark(table: Map<string, readonly number[]>, settings: DSparkSettings): void {
  const { vocab, markov } = settings;
  const { hidden } = settings.backbone;
  const drafted = settings.draftVocab ?? vocab;
  if (settings.ownEmbed) table.set("embed_tokens.weight", [vocab, hidden]);
  if (settings.ownHead) table.set("lm_head.weight", [drafted, hidden]);
  if (settings.draftVocab !== null) table.set(VOCABULARY_MAP, [drafted]);
  if (markov !== null) {
    const { rank, type } = markov;
    table.set("markov_head.markov_w1.weight", [vocab, rank]);
    table.set("markov_head.markov_w2.weight", [drafted, rank]);
    if (type === "gated") addLinear(table, "markov_head.gate_proj", rank, hidden + rank);
    if (type === "rnn") addLinear(table, "markov_head.joint_proj", 3 * rank, 2 * rank + hidden);
  }
  if (settings.confidence !== null) {
    const extra = settings.confidence === "hidden+markov" ? (markov?.rank ?? 0) : 0;
    addLinear(table, "confidence_head.proj", 1, hidden + extra);
  }
  if (settings.logSnr !== null) {
    addLinear(table, "log_snr_embed.fc1", hidden, SNR_FEATURES);
    addLinear(table, "log_snr_embed.fc2", hidden, hidden);
  }
}

function addLinear(table: Map<string, readonly number[]>, path: string, out: number, width: number): void {
  table.set(`${path}.weight`, [out, width]);
  table.set(`${path}.bias`, [out]);
}

function addSelector(table: Map<string, readonly number[]>, { selector, vocab, backbone }: DFlashSettings): void {
  if (selector === null) return;
  table.set("candidate_selector.predecessor_codebook", [vocab, selector.rank]);
  table.set("candidate_selector.successor_codebook", [vocab, selector.rank]);
  table.set("candidate_selector.hidden_projection.weight", [selector.rank, backbone.hidden]);
}

/** @throws DrafterError naming up to eight tensors of each fault */
export function checkTensors(dir: string, tensors: ReadonlyMap<string, TensorLocation>, table: TensorTable): void {
  const missing = [...table.keys()].filter((name) => !tensors.has(name));
  const unexpected = [...tensors.keys()].filter((name) => !table.has(name) && !IGNORED.has(name));
  const misshapen = [...table].flatMap(([name, wanted]) => {
    const found = tensors.get(name)?.shape;
    const same = found === undefined || String(found) === String(wanted);
    return same ? [] : [`${name} [${found}] (the config asks for [${wanted}])`];
  });
  const unread = [...tensors].flatMap(([name, { dtype }]) =>
    !table.has(name) || name === VOCABULARY_MAP || isFloatDtype(dtype) ? [] : [`${name} (${dtype})`],
  );
  const parts = [
    listed("missing", missing),
    listed("unexpected", unexpected),
    listed("misshapen", misshapen),
    listed("neither F32, F16 nor BF16", unread),
  ];
  const said = parts.filter((part) => part !== "");
  if (said.length > 0) {
    throw new DrafterError(dir, "tensors", `the tensors are not those of the config: ${said.join("; ")}`);
  }
}

function listed(what: string, names: readonly string[]): string {
  if (names.length === 0) return "";
  const more = names.length > LISTED ? ` and ${names.length - LISTED} more` : "";
  return `${what} ${names.slice(0, LISTED).join(", ")}${more}`;
}
