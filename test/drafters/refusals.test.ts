/** The table of refusals (drafters.md §7), row by row: what is refused, by which reason, and what the message says. */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { DrafterError } from "../../src/drafters/errors.ts";
import { loadDrafter, tapOffsetFrom } from "../../src/drafters/load.ts";
import type { WantedMode } from "../../src/drafters/packaging/detect.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import { type GgufField, ggufBytes } from "../checkpoint/gguf-writer.ts";
import { put, temporaryFolder } from "../checkpoint/temporary-folder.ts";
import {
  BACKBONE,
  CONFIDENCE,
  DFLASH,
  DSPARK,
  DSPARK_TENSORS,
  drafterFolder,
  MARKOV,
  type Shapes,
  SPECULATORS,
  TARGET,
  without,
} from "./tiny-folder.ts";

const root = temporaryFolder();
const STOCK = { compute: stockCompute("float32"), dtype: "float32" } as const;

interface Refusal {
  readonly what: string;
  readonly config: Readonly<Record<string, unknown>>;
  readonly tensors?: Shapes;
  readonly mode?: WantedMode;
  readonly reason: DrafterError["reason"];
  /** Each must be in the message. */
  readonly says: readonly string[];
}

const spec = (algorithm: string) => ({ ...SPECULATORS, speculators_config: { algorithm } });
const oneFewer = without(DSPARK_TENSORS, "norm.weight");

const REFUSALS: readonly Refusal[] = [
  {
    what: "speculators eagle3 by model type",
    config: { ...SPECULATORS, speculators_model_type: "eagle3" },
    reason: "algorithm",
    says: ['"eagle3"', "only dspark", "--mode dflash", "--mode lookup"],
  },
  ...["eagle", "eagle3", "peagle", "mtp", "dflash"].map(
    (name): Refusal => ({
      what: `speculators ${name} by algorithm`,
      config: spec(name),
      reason: "algorithm",
      says: [`"${name}"`, "only dspark is translated"],
    }),
  ),
  {
    what: "raw EAGLE3 by architecture",
    config: { ...DSPARK, architectures: ["LlamaForCausalLMEagle3"], model_type: "llama" },
    reason: "eagle",
    says: ["EAGLE", "LlamaForCausalLMEagle3"],
  },
  {
    what: "raw EAGLE by key",
    config: { ...DSPARK, architectures: ["LlamaForCausalLM"], eagle_aux_hidden_state_layer_ids: [1, 2] },
    reason: "eagle",
    says: ["eagle_aux_hidden_state_layer_ids"],
  },
  {
    what: "EAGLE by its config block",
    config: { ...DSPARK, eagle_config: { use_aux: true } },
    reason: "eagle",
    says: ["eagle_config"],
  },
  {
    what: "Medusa",
    config: { ...DSPARK, architectures: ["MedusaModel"] },
    reason: "medusa",
    says: ["Medusa", "MedusaModel"],
  },
  {
    what: "MTP",
    config: { ...DSPARK, architectures: ["DeepSeekMTPModel"] },
    reason: "mtp",
    says: ["MTP"],
  },
  {
    what: "a full model with an embedded drafter",
    config: { ...without(DSPARK, "block_size"), model_type: "deepseek_v4", dspark_block_size: 7 },
    reason: "embedded",
    says: ["full target model", "embedded drafter", "not a standalone"],
  },
  {
    what: "DFlash with a Markov head",
    config: { ...DFLASH, markov_rank: 4 },
    tensors: { ...BACKBONE, ...MARKOV },
    reason: "hybrid",
    says: ["Markov head", "rank 4"],
  },
  {
    what: "a Markov rank when DFlash is insisted on",
    config: DSPARK,
    mode: "dflash",
    reason: "hybrid",
    says: ["Markov head", "rank 4"],
  },
  {
    what: "DFly by architecture",
    config: { ...DFLASH, architectures: ["DFlyDraftModel"] },
    tensors: BACKBONE,
    reason: "dfly",
    says: ["DFly", "not supported"],
  },
  {
    what: "DFly by tensors",
    config: DFLASH,
    tensors: { ...BACKBONE, layer_fusion_weights: [2] },
    reason: "dfly",
    says: ["DFly", "layer_fusion_weights"],
  },
  {
    what: "a truncated speculators backbone",
    config: { ...SPECULATORS, transformer_layer_config: { hidden_size: 8, vocab_size: 32 } },
    reason: "missing-keys",
    says: ["num_hidden_layers", "intermediate_size", "num_attention_heads"],
  },
  {
    what: "a speculators export without a backbone",
    config: without(SPECULATORS, "transformer_layer_config"),
    reason: "missing-keys",
    says: ["transformer_layer_config"],
  },
  {
    what: "missing DSpark keys",
    config: without(DSPARK, "mask_token_id", "target_layer_ids"),
    reason: "missing-keys",
    says: ["mask_token_id", "target_layer_ids"],
  },
  {
    what: "missing DFlash keys",
    config: without(DFLASH, "block_size", "head_dim"),
    tensors: BACKBONE,
    reason: "missing-keys",
    says: ["head_dim"],
  },
  {
    what: "DFlash without a block size",
    config: without(DFLASH, "block_size"),
    tensors: BACKBONE,
    reason: "missing-keys",
    says: ["block_size"],
  },
  {
    what: "an unknown family",
    config: { ...DSPARK, model_type: "mamba" },
    reason: "family",
    says: ['"mamba"', "qwen3 and gemma4", "lookup works with any target"],
  },
  {
    what: "a reduced vocabulary without d2t",
    config: { ...SPECULATORS, draft_vocab_size: 16 },
    tensors: { ...DSPARK_TENSORS, "lm_head.weight": [16, 8] },
    reason: "vocabulary-map",
    says: ["draft_vocab_size 16 of 32", "d2t", "could not be mapped"],
  },
  {
    what: "d2t without draft_vocab_size",
    config: SPECULATORS,
    tensors: { ...DSPARK_TENSORS, d2t: [16] },
    reason: "vocabulary-map",
    says: ["d2t", "draft_vocab_size"],
  },
  {
    what: "a fusing matrix of another target",
    config: DSPARK,
    tensors: { ...DSPARK_TENSORS, "fc.weight": [8, 48] },
    reason: "context-width",
    says: ["48", "16", "2 taps of 8"],
  },
  {
    what: "a larger vocabulary than the target's",
    config: { ...DSPARK, vocab_size: 40 },
    reason: "vocabulary",
    says: ["40", "32"],
  },
  {
    what: "a tap beyond the target",
    config: { ...DSPARK, target_layer_ids: [1, 9] },
    reason: "taps",
    says: ["layer 9", "0 to 5"],
  },
  {
    what: "a tap on the last layer",
    config: { ...DSPARK, target_layer_ids: [1, 5] },
    reason: "taps",
    says: ["layer 5", "last one is not tapped"],
  },
  {
    what: "taps out of order",
    config: { ...DSPARK, target_layer_ids: [3, 1] },
    reason: "taps",
    says: ["[3,1]", "ascending"],
  },
  {
    what: "a tap twice",
    config: { ...DSPARK, target_layer_ids: [3, 3] },
    reason: "taps",
    says: ["[3,3]", "ascending"],
  },
  {
    what: "a tap below the embedding",
    config: { ...DSPARK, target_layer_ids: [-2, 3] },
    reason: "taps",
    says: ["-1"],
  },
  {
    what: "DFlash 2 without selector fields",
    config: { ...DFLASH, architectures: ["DFlash2DraftModel"] },
    tensors: BACKBONE,
    reason: "selector",
    says: ["selector_rank", "selector_top_k"],
  },
  {
    what: "log-SNR without bounds",
    config: { ...DSPARK, log_snr_conditioning: true, min_log_snr: 3, max_log_snr: -3 },
    reason: "log-snr",
    says: ["3", "-3"],
  },
  {
    what: "a missing, an unexpected and a misshapen tensor at once",
    config: DSPARK,
    tensors: { ...oneFewer, "extra.weight": [3], "markov_head.markov_w2.weight": [31, 4] },
    reason: "tensors",
    says: ["missing norm.weight", "unexpected extra.weight", "markov_w2.weight [31,4]", "[32,4]"],
  },
  {
    what: "ten unexpected tensors: eight are named",
    config: DSPARK,
    tensors: { ...DSPARK_TENSORS, ...Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`extra.${i}`, [1]])) },
    reason: "tensors",
    says: ["extra.7 and 2 more"],
  },
  {
    what: "promised Markov tensors that are not there",
    config: DSPARK,
    tensors: BACKBONE,
    reason: "tensors",
    says: ["missing markov_head.markov_w1.weight, markov_head.markov_w2.weight"],
  },
  {
    what: "a mode that disagrees: dspark",
    config: DFLASH,
    tensors: BACKBONE,
    mode: "dspark",
    reason: "mode",
    says: ["--mode dspark", "dflash drafter"],
  },
  {
    what: "a mode that disagrees: dflash",
    config: { ...DSPARK, markov_rank: 0 },
    tensors: BACKBONE,
    mode: "dflash",
    reason: "mode",
    says: ["--mode dflash", "dspark drafter"],
  },
];

function refusal(action: () => unknown): DrafterError {
  try {
    action();
  } catch (error) {
    if (error instanceof DrafterError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

test.each(REFUSALS.map((row) => [row.what, row] as const))("%s", (_, row) => {
  const dir = drafterFolder(root, row.config, row.tensors ?? DSPARK_TENSORS);
  const error = refusal(() => loadDrafter(dir, TARGET, { ...STOCK, mode: row.mode ?? null }));
  expect(error.reason).toBe(row.reason);
  expect(error.message).toStartWith(dir);
  for (const part of row.says) expect(error.message).toContain(part);
});

test("borrowed matrices need the target's width", () => {
  const dir = drafterFolder(root, DSPARK, { ...DSPARK_TENSORS, "fc.weight": [8, 32] });
  const error = refusal(() => loadDrafter(dir, { ...TARGET, hiddenSize: 16 }, STOCK));
  expect(error.reason).toBe("context-width");
  expect(error.message).toContain("8 wide, the target's 16");
});

test("a rotation that is not read is named", () => {
  const dir = drafterFolder(root, { ...DSPARK, rope_parameters: { rope_type: "longrope" } }, DSPARK_TENSORS);
  expect(() => loadDrafter(dir, TARGET, STOCK)).toThrow('"longrope"');
});

test("a tensor of an integer type is no weight", () => {
  const dir = drafterFolder(root, DSPARK, DSPARK_TENSORS, { "norm.weight": "I8" });
  expect(refusal(() => loadDrafter(dir, TARGET, STOCK)).message).toContain(
    "neither F32, F16 nor BF16 norm.weight (I8)",
  );
});

const KEYS: readonly (readonly [string, GgufField])[] = [["general.architecture", { string: "dspark" }]];
const tensor = (name: string, type: number, bytes: number) => ({
  name,
  shape: [32],
  type,
  data: new Uint8Array(bytes),
});

test.each([
  ["another architecture", [["general.architecture", { string: "llama" }]] as const, [], '"llama"'],
  ["a packed type", KEYS, [tensor("output_norm.weight", 8, 34)], "8 (Q8_0)"],
  ["an unknown tensor", KEYS, [tensor("blk.0.attn_sinks.weight", 0, 128)], "blk.0.attn_sinks.weight"],
])("GGUF: %s", (what, keys, tensors, says) => {
  const file = put(root, `${what.replaceAll(" ", "-")}.gguf`, ggufBytes(keys, tensors));
  const error = refusal(() => loadDrafter(file, TARGET, { ...STOCK, cacheRoot: root }));
  expect(error.reason).toBe("gguf");
  expect(error.message).toContain(says);
});

test("a conversion without a cache folder", () => {
  const file = put(root, "nowhere.gguf", ggufBytes(KEYS, []));
  expect(refusal(() => loadDrafter(file, TARGET, STOCK)).message).toContain("cache folder");
});

test("ModelOpt's other formats", () => {
  const dir = drafterFolder(root, DSPARK, { ...DSPARK_TENSORS, "fc.weight_scale": [] });
  writeFileSync(join(dir, "hf_quant_config.json"), JSON.stringify({ quantization: { quant_algo: "NVFP4" } }));
  const error = refusal(() => loadDrafter(dir, TARGET, { ...STOCK, cacheRoot: root }));
  expect(error.reason).toBe("nvfp4");
  expect(error.message).toContain("fc.weight is F32");
});

test("the switch of the tap offset must be an integer", () => {
  expect(tapOffsetFrom({})).toBeNull();
  expect(tapOffsetFrom({ MLX_DSPARK_TAP_OFFSET: " 0 " })).toBe(0);
  expect(tapOffsetFrom({ MLX_DSPARK_TAP_OFFSET: "-1" })).toBe(-1);
  expect(() => tapOffsetFrom({ MLX_DSPARK_TAP_OFFSET: "one" })).toThrow("MLX_DSPARK_TAP_OFFSET");
});

test("confidence tensors make a Markov head with DFlash's label a DSpark head", () => {
  const dir = drafterFolder(
    root,
    { ...DFLASH, mask_token_id: 1, markov_rank: 4 },
    {
      ...BACKBONE,
      ...MARKOV,
      ...CONFIDENCE,
      "misfit.weight": [1],
    },
  );
  // It gets as far as the check of its tensors.
  expect(refusal(() => loadDrafter(dir, TARGET, STOCK)).message).toContain("unexpected misfit.weight");
});
