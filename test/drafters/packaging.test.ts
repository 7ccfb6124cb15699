/**
 * What each published layout resolves to: the golden folders against the settings that the reference resolved, made-up
 * ones for keys that the set does not have, and the two layouts that are converted first.
 */
import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readJsonSection } from "../../src/checkpoint/config-json.ts";
import { openCheckpoint, readTensorBytes } from "../../src/checkpoint/safetensors-set.ts";
import { readSettings } from "../../src/drafters/packaging/detect.ts";
import type { DrafterFolder } from "../../src/drafters/packaging/folder.ts";
import { preparedFolder } from "../../src/drafters/packaging/prepare.ts";
import type { DrafterSettings, DSparkSettings } from "../../src/drafters/settings.ts";
import { temporaryFolder } from "../checkpoint/temporary-folder.ts";
import { drafterCases, drafterRoot, drafterSource, readCase, readVectors } from "../support/drafter-golden.ts";
import {
  BACKBONE,
  DFLASH,
  DSPARK,
  DSPARK_TENSORS,
  drafterFolder,
  type Shapes,
  SPECULATORS,
  without,
} from "./tiny-folder.ts";

const root = temporaryFolder();

function opened(dir: string): DrafterFolder {
  const config = readJsonSection(join(dir, "config.json"));
  return { dir, config, checkpoint: openCheckpoint(dir, { drafter: true }) };
}

function settingsOf(
  config: Readonly<Record<string, unknown>>,
  tensors: Shapes = DSPARK_TENSORS,
  tapOffset: number | null = null,
): DrafterSettings {
  return readSettings(opened(drafterFolder(root, config, tensors)), null, tapOffset);
}

function dspark(settings: DrafterSettings): DSparkSettings {
  if (settings.kind !== "dspark") throw new Error(`a ${settings.kind} drafter`);
  return settings;
}

const LAYOUTS: Readonly<Record<string, string>> = {
  dflash: "z-lab",
  dflash2: "z-lab",
  dflash_sliding: "z-lab",
  dspark_gemma4: "deepspec",
  dspark_gguf: "deepspec",
  dspark_lfm2: "lfm2",
  dspark_muse: "speculators",
  dspark_native: "deepspec",
  dspark_nemotron: "dflash-lineage",
  dspark_qwen35: "deepspec",
  dspark_specforge_yarn: "specforge",
  dspark_speculators_d2t: "speculators",
  dspark_window: "deepspec",
};

test.each([...drafterCases])("golden %s", (name) => {
  const { resolved, resolved_tap_layers, kind } = readCase(name);
  const settings = readSettings(opened(preparedFolder(drafterSource(name), root)), null, null);
  expect(settings.layout).toBe(LAYOUTS[name] ?? "");
  expect(settings.kind).toBe(kind === "dflash" ? (name === "dflash2" ? "dflash2" : "dflash") : "dspark");
  expect([...settings.taps]).toEqual([...resolved_tap_layers]);
  if (settings.kind !== "dspark") return;
  const { backbone, markov } = settings;
  const gemma = backbone.family === "gemma4";
  expect(resolved).toMatchObject({
    hidden_size: backbone.hidden,
    vocab_size: settings.vocab,
    draft_vocab_size: settings.draftVocab,
    num_hidden_layers: backbone.layers.length,
    intermediate_size: backbone.intermediate,
    num_attention_heads: backbone.heads,
    gated_q_proj: backbone.gatedQ,
    offset_rms_norm: backbone.offsetNorms,
    attention_sink: backbone.sinks,
    attention_bias: backbone.attentionBias,
    has_own_lm_head: settings.ownHead,
    has_own_embed: settings.ownEmbed,
    block_size: settings.block,
    mask_token_id: settings.maskId,
    logits_start: settings.logitsStart,
    markov_rank: markov?.rank ?? 0,
    enable_confidence_head: settings.confidence !== null,
    final_logit_softcapping: settings.softcap,
    log_snr_conditioning: settings.logSnr !== null,
  });
  expect(backbone.headDim).toBe(Number(resolved[gemma ? "global_head_dim" : "head_dim"]));
  expect(backbone.kvHeads).toBe(Number(resolved[gemma ? "num_global_key_value_heads" : "num_key_value_heads"]));
  for (const mask of backbone.layers) {
    expect({ causal_block: mask.causal, sliding_window: mask.window }).toEqual({
      causal_block: resolved.causal_block === true,
      sliding_window: (resolved.sliding_window as number | null) ?? null,
    });
  }
});

test("speculators: taps are inputs of layers, unless the switch says otherwise", () => {
  expect([...settingsOf(SPECULATORS).taps]).toEqual([1, 3]);
  expect([...settingsOf(SPECULATORS, DSPARK_TENSORS, 0).taps]).toEqual([2, 4]);
  expect([...settingsOf({ ...SPECULATORS, aux_hidden_state_layer_ids: [0, 4] }).taps]).toEqual([-1, 3]);
});

test("speculators: the slot that predicts first", () => {
  const start = (extra: Readonly<Record<string, unknown>>) =>
    settingsOf({ ...without(SPECULATORS, "speculators_config"), ...extra }).logitsStart;
  const method = (speculative_tokens: number) => ({
    speculators_config: { algorithm: "dspark", proposal_methods: [{ speculative_tokens }] },
  });
  expect(start(method(4))).toBe(0);
  expect(start(method(3))).toBe(1);
  expect(start({ ...method(3), sample_from_anchor: true })).toBe(1);
  expect(start({ sample_from_anchor: true })).toBe(0);
  expect(start({ sample_from_anchor: false })).toBe(1);
  expect(start({})).toBe(1);
});

test("speculators: windows and causality belong to sliding layers alone", () => {
  const layer = {
    ...SPECULATORS.transformer_layer_config,
    num_hidden_layers: 2,
    layer_types: ["sliding_attention", "full_attention"],
    use_sliding_window: true,
    sliding_window: 9,
  };
  const masks = (extra: object, nested = layer) =>
    settingsOf({ ...SPECULATORS, ...extra, transformer_layer_config: nested }).backbone.layers.map(
      ({ window, causal }) => ({ window, causal }),
    );
  const full = { window: null, causal: false };
  expect(masks({})).toEqual([{ window: 9, causal: true }, full]);
  expect(masks({ sliding_window_non_causal: true })).toEqual([{ window: 9, causal: false }, full]);
  expect(masks({}, { ...layer, use_sliding_window: false })).toEqual([full, full]);
});

test("speculators: key and value heads default to the query heads, a top-level model_type to nothing", () => {
  const nested = without(SPECULATORS.transformer_layer_config, "num_key_value_heads", "model_type");
  const settings = settingsOf({ ...SPECULATORS, transformer_layer_config: nested }, { "fc.weight": [8, 16] });
  expect(settings.backbone.kvHeads).toBe(2);
});

test("the native layout: the slot that predicts first, and the widths of the tensors", () => {
  expect(settingsOf(DSPARK).logitsStart).toBe(0);
  expect(settingsOf({ ...DSPARK, sample_from_anchor: false }).logitsStart).toBe(1);
  expect(settingsOf({ ...DSPARK, sample_from_anchor: false, logits_start: 0 }).logitsStart).toBe(0);
  // Configs are copies of the target's: what the tensors say is right.
  const copied = { ...DSPARK, hidden_size: 4096, intermediate_size: 999, num_attention_heads: 32, head_dim: 128 };
  const { hidden, intermediate, heads, kvHeads, headDim } = settingsOf(copied).backbone;
  expect({ hidden, intermediate, heads, kvHeads, headDim }).toEqual({
    hidden: 8,
    intermediate: 16,
    heads: 2,
    kvHeads: 1,
    headDim: 4,
  });
});

test("DeepSpec's label on DFlash's name is no DFlash drafter", () => {
  const settings = settingsOf({ ...DSPARK, architectures: ["DFlashDraftModel"] });
  expect(settings.kind).toBe("dspark");
});

test("qwen3_5: only the exact model type has offset norms, and either sign turns a part of each head", () => {
  const rope = { rope_parameters: { rope_theta: 1e7, partial_rotary_factor: 0.5 } };
  const facts = (config: object) => {
    const { offsetNorms, rope: spec } = settingsOf({ ...DSPARK, ...rope, ...config }).backbone;
    return { offsetNorms, dims: spec.dims, base: spec.base };
  };
  expect(facts({ model_type: "qwen3_5" })).toEqual({ offsetNorms: true, dims: 2, base: 1e7 });
  expect(facts({ model_type: "qwen3_5_text" })).toEqual({ offsetNorms: false, dims: 4, base: 1e7 });
  expect(facts({ enable_qwen35_gated_q_proj: true })).toEqual({ offsetNorms: false, dims: 2, base: 1e7 });
});

test("a gate in q_proj shows in its rows", () => {
  const gated = { ...DSPARK_TENSORS, "layers.0.self_attn.q_proj.weight": [16, 8] };
  expect(settingsOf({ ...DSPARK, model_type: "qwen3_5" }, gated).backbone.gatedQ).toBe(true);
  expect(settingsOf({ ...DSPARK, model_type: "qwen3_5" }).backbone.gatedQ).toBe(false);
});

test("gemma-4's cap of logits: 30 when the config is silent, none when it says null", () => {
  const gemma = { ...DSPARK, model_type: "gemma4_text" };
  expect(settingsOf(gemma).softcap).toBe(30);
  expect(settingsOf({ ...gemma, final_logit_softcapping: null }).softcap).toBeNull();
  expect(settingsOf(DSPARK).softcap).toBeNull();
});

test("drafts from the first ids only, where the config says so", () => {
  expect(dspark(settingsOf(DSPARK)).idLimit).toBeNull();
  expect(dspark(settingsOf({ ...DSPARK, draft_id_limit: 20 })).idLimit).toBe(20);
  expect(dspark(settingsOf({ ...DSPARK, draft_id_limit: 32 })).idLimit).toBeNull();
  expect(() => settingsOf({ ...DSPARK, draft_id_limit: 33 })).toThrow("33 of a vocabulary of 32");
  expect(() => settingsOf({ ...DSPARK, draft_id_limit: 0 })).toThrow("draft_id_limit");
  const reduced = { ...DSPARK_TENSORS, "lm_head.weight": [16, 8], d2t: [16] };
  const config = { ...DSPARK, draft_vocab_size: 16 };
  expect(() => settingsOf({ ...config, draft_id_limit: 8 }, reduced)).toThrow("reduced vocabulary");
});

test("the confidence head is where its tensors are, unless the config decides", () => {
  const bare = without(DSPARK_TENSORS, "confidence_head.proj.weight", "confidence_head.proj.bias");
  expect(dspark(settingsOf(DSPARK)).confidence).toBe("hidden+markov");
  expect(dspark(settingsOf(DSPARK, bare)).confidence).toBeNull();
  expect(dspark(settingsOf({ ...DSPARK, enable_confidence_head: true }, bare)).confidence).toBe("hidden+markov");
  expect(dspark(settingsOf({ ...DSPARK, confidence_head_with_markov: false })).confidence).toBe("hidden");
});

test("LFM2: interleaved rotation when the config says so, by either key", () => {
  const nested = { target_layer_ids: [1, 3], mask_token_id: 1 };
  const lfm2 = { ...without(DSPARK, "target_layer_ids", "mask_token_id"), dflash_config: nested };
  const named = { ...lfm2, architectures: ["Lfm2DSparkDraftModel"] };
  expect(settingsOf(named)).toMatchObject({ layout: "lfm2", backbone: { rope: { traditional: false } } });
  expect(settingsOf({ ...named, rope_is_neox_style: false }).backbone.rope.traditional).toBe(true);
  expect(settingsOf({ ...named, is_neox_style: false }).backbone.rope.traditional).toBe(true);
});

test("DFlash: causality of sliding layers when the config is silent, of all or none when it speaks", () => {
  const sliding = {
    ...DFLASH,
    num_hidden_layers: 2,
    layer_types: ["sliding_attention", "full_attention"],
    sliding_window: 8,
  };
  const causal = (extra: object) => settingsOf({ ...sliding, ...extra }, BACKBONE).backbone.layers.map((m) => m.causal);
  expect(causal({})).toEqual([true, false]);
  expect(causal({ is_causal: null })).toEqual([true, false]);
  expect(causal({ is_causal: false })).toEqual([false, false]);
  expect(causal({ is_causal: true })).toEqual([true, true]);
  expect(() => settingsOf({ ...sliding, layer_types: ["full_attention"] }, BACKBONE)).toThrow("names 1 layers of 2");
  expect(() => settingsOf({ ...sliding, layer_types: ["a", "b"] }, BACKBONE)).toThrow('"a"');
});

test("DFlash: its keys are read in dflash_config first", () => {
  const nested = { block_size: 8, target_layer_ids: [0, 2], mask_token_id: 5, input_embedding_scale: 2 };
  const settings = settingsOf({ ...DFLASH, mask_token_id: 9, dflash_config: nested }, BACKBONE);
  expect(settings).toMatchObject({ block: 8, maskId: 5, taps: [0, 2], embedScale: 2, logitsStart: 1 });
});

test("a GGUF file becomes the reference's folder, byte for byte, and only once", () => {
  const name = "dspark_gguf";
  const golden = readCase(name);
  const dir = preparedFolder(drafterSource(name), root);
  expect(dir).toBe(join(root, "drafters", "tiny-dspark-bf16"));
  const config = JSON.parse(readFileSync(join(dir, "config.json"), "utf8")) as Record<string, unknown>;
  const wanted = golden.converted_config ?? {};
  expect({ ...config, converted_from: "" }).toEqual({ ...wanted, converted_from: "" });
  const checkpoint = openCheckpoint(dir);
  const tensors = golden.converted_tensors ?? {};
  expect([...checkpoint.tensors.keys()].sort()).toEqual(Object.keys(tensors).sort());
  for (const [tensor, { shape, sha256_of_bytes }] of Object.entries(tensors)) {
    expect(checkpoint.tensors.get(tensor)).toMatchObject({ dtype: "BF16", shape });
    const hash = createHash("sha256").update(readTensorBytes(checkpoint, tensor)).digest("hex");
    expect({ tensor, hash }).toEqual({ tensor, hash: sha256_of_bytes });
  }
  const before = statSync(join(dir, "model.safetensors")).ino;
  expect(preparedFolder(drafterSource(name), root)).toBe(dir);
  expect(statSync(join(dir, "model.safetensors")).ino).toBe(before);
  expect(readdirSync(join(root, "drafters")).filter((entry) => /\.(tmp|old)-/.test(entry))).toEqual([]);
});

/** A drafter of which one matrix is packed as ModelOpt does it, with the golden numbers. */
function nvfp4Folder(): string {
  const vectors = readVectors(join(drafterRoot, "policy/sampling.safetensors"));
  const bytes = (name: string) => Uint8Array.from(vectors.get(name)?.values ?? []);
  const matrix = "layers.0.mlp.up_proj.weight";
  const dir = drafterFolder(
    root,
    { ...DSPARK, quantization_config: { quant_method: "modelopt", quant_algo: "NVFP4" } },
    {
      ...without(DSPARK_TENSORS, "confidence_head.proj.weight", "confidence_head.proj.bias"),
      [matrix]: [4, 32],
      [`${matrix}_scale`]: [4, 4],
      [`${matrix}_scale_2`]: [],
      "layers.0.mlp.up_proj.input_scale": [],
    },
    { [matrix]: "U8", [`${matrix}_scale`]: "F8_E4M3" },
  );
  const file = join(dir, "model.safetensors");
  const content = readFileSync(file);
  const put = (name: string, data: Uint8Array) => {
    content.set(data, openCheckpoint(dir, { drafter: true }).tensors.get(name)?.offset ?? -1);
  };
  put(matrix, bytes("nvfp4_weight"));
  put(`${matrix}_scale`, bytes("nvfp4_scale"));
  put(`${matrix}_scale_2`, new Uint8Array(Float32Array.from(vectors.get("nvfp4_scale_2")?.values ?? []).buffer));
  writeFileSync(file, content);
  return dir;
}

test("NVFP4 is unpacked to bfloat16; quantization's keys and tensors go", () => {
  const dir = nvfp4Folder();
  const out = preparedFolder(dir, root);
  expect(out).toBe(join(root, "drafters", `${dir.split("/").at(-1)}-bf16`));
  const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8")) as Record<string, unknown>;
  expect(config).toMatchObject({ block_size: 4, enable_confidence_head: false, has_lm_head: false });
  expect(config).not.toHaveProperty("quantization_config");
  const checkpoint = openCheckpoint(out);
  expect([...checkpoint.tensors.keys()].filter((name) => name.includes("scale"))).toEqual([]);
  const matrix = "layers.0.mlp.up_proj.weight";
  expect(checkpoint.tensors.get(matrix)).toMatchObject({ dtype: "BF16", shape: [4, 64] });
  const halves = new Uint16Array(readTensorBytes(checkpoint, matrix).buffer);
  const values = new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
  const wanted = readVectors(join(drafterRoot, "policy/sampling.safetensors")).get("nvfp4_dequantized");
  expect([...values]).toEqual([...(wanted?.values ?? [])]);
  // A folder that changed is converted again.
  const before = statSync(join(out, "config.json")).ino;
  utimesSync(join(dir, "config.json"), new Date(), new Date(Date.now() + 5000));
  expect(preparedFolder(dir, root)).toBe(out);
  expect(statSync(join(out, "config.json")).ino).not.toBe(before);
  expect(existsSync(join(out, ".converted.json"))).toBe(true);
});

test("NVFP4 is also recognised by its own file, and other folders are used as they are", () => {
  const dir = drafterFolder(root, DSPARK, DSPARK_TENSORS);
  expect(preparedFolder(dir, null)).toBe(dir);
  writeFileSync(join(dir, "hf_quant_config.json"), JSON.stringify({ quantization: { quant_algo: "NVFP4" } }));
  expect(preparedFolder(dir, root)).toContain("-bf16");
});
