/** What a checkpoint's quantization is, per module, and what is refused before any weight is read. */
import { describe, expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { parseConfigText, readJsonSection } from "../../src/checkpoint/config-json.ts";
import { CheckpointError } from "../../src/checkpoint/errors.ts";
import { resolveQuantization, type TensorShape } from "../../src/checkpoint/quantization.ts";
import { checkRemoteCode } from "../../src/checkpoint/remote-code.ts";
import { put, temporaryFolder } from "./temporary-folder.ts";

const root = temporaryFolder();
const resolve = (config: unknown, name = "org_model") =>
  resolveQuantization(path.join(root, name), parseConfigText(JSON.stringify(config), "config.json"));

function triple(
  p: string,
  inFeatures: number,
  bits: number,
  groupSize: number,
  dtype = "F16",
): Map<string, TensorShape> {
  return new Map([
    [`${p}.weight`, { dtype: "U32", shape: [8, (inFeatures * bits) / 32] }],
    [`${p}.scales`, { dtype, shape: [8, inFeatures / groupSize] }],
    [`${p}.biases`, { dtype, shape: [8, inFeatures / groupSize] }],
  ]);
}

describe("per module", () => {
  test("no scales: unquantized, whatever the block says", () => {
    const q = resolve({ quantization: { group_size: 64, bits: 4 } });
    expect(q.layout).toBe("mlx");
    expect(q.defaults).toEqual({ groupSize: 64, bits: 4, mode: "affine" });
    expect(q.forModule("p", 64, new Map([["p.weight", { dtype: "F32", shape: [8, 64] }]]))).toBeNull();
  });

  test.each([2, 3, 4, 5, 6, 8])("%d bits are inferred from shapes, the block's own ignored", (bits) => {
    const q = resolve({ quantization: { group_size: 64, bits: 4 } });
    for (const groupSize of [32, 64, 128]) {
      expect(q.forModule("p", 256, triple("p", 256, bits, groupSize))).toEqual({ groupSize, bits, mode: "affine" });
    }
  });

  test.each([
    ["nvfp4", 4, 16],
    ["mxfp4", 4, 32],
    ["mxfp8", 8, 32],
  ] as const)("uint8 scales: %s", (mode, bits, groupSize) => {
    expect(resolve({}).forModule("p", 128, triple("p", 128, bits, groupSize, "U8"))).toEqual({ groupSize, bits, mode });
  });

  test("false, and overrides with the defaults 64 / 4 / affine", () => {
    const q = resolve({
      quantization: { group_size: 32, bits: 8, a: false, b: {}, c: { bits: 6 }, d: { group_size: 32 } },
    });
    expect(q.forModule("a", 128, triple("a", 128, 8, 32))).toBeNull();
    expect(q.forModule("b", 128, triple("b", 128, 4, 64))).toEqual({ groupSize: 64, bits: 4, mode: "affine" });
    expect(q.forModule("c", 128, triple("c", 128, 6, 64))).toEqual({ groupSize: 64, bits: 6, mode: "affine" });
    expect(q.forModule("d", 128, triple("d", 128, 4, 32))).toEqual({ groupSize: 32, bits: 4, mode: "affine" });
  });

  test("the path with and without language_model., and in its raw form", () => {
    const spec = { group_size: 32, bits: 8 };
    const tensors = (p: string) => triple(p, 64, 8, 32);
    for (const [key, p] of [
      ["language_model.model.x", "model.x"],
      ["model.x", "language_model.model.x"],
      ["language_model.model.x", "model.language_model.x"],
    ] as const) {
      const q = resolve({ quantization: { group_size: 64, bits: 4, [key]: spec } });
      expect(q.forModule(p, 64, tensors(p))).toEqual({ groupSize: 32, bits: 8, mode: "affine" });
    }
    const off = resolve({ quantization: { group_size: 64, bits: 4, "language_model.lm_head": false } });
    expect(off.forModule("lm_head", 64, triple("lm_head", 64, 4, 64))).toBeNull();
  });

  test("shapes that contradict an override or any mode", () => {
    const q = resolve({ quantization: { group_size: 64, bits: 4, p: { bits: 8 } } });
    expect(() => q.forModule("p", 128, triple("p", 128, 4, 64))).toThrow(/8 bits.*declared/);
    expect(() => q.forModule("p", 128, new Map())).toThrow(/missing/);
    expect(() => resolve({}).forModule("p", 96, triple("p", 128, 4, 64))).toThrow(CheckpointError);
    expect(() => resolve({}).forModule("p", 128, triple("p", 128, 8, 16, "U8"))).toThrow(/no known mode/);
    expect(() => resolve({}).forModule("p", 512, triple("p", 512, 4, 256))).toThrow(/groups of 256/);
  });
});

describe("published kinds", () => {
  test.each([
    [{ quant_method: "mxfp4" }, "mlx", { groupSize: 32, bits: 4, mode: "mxfp4" }],
    [{ quant_method: "mxfp8" }, "mlx", { groupSize: 32, bits: 8, mode: "mxfp8" }],
    [
      { quant_method: "fp8", scale_fmt: "ue8m0", weight_block_size: [32, 32] },
      "mlx",
      { groupSize: 32, bits: 8, mode: "mxfp8" },
    ],
    [{ quant_method: "fp8", weight_block_size: [128, 128] }, "none", null],
    [{ quant_method: "bitsandbytes" }, "none", null],
    [
      { quant_method: "compressed-tensors", format: "nvfp4-pack-quantized" },
      "compressed-tensors",
      { groupSize: 16, bits: 4, mode: "nvfp4" },
    ],
    [
      { quant_method: "compressed-tensors", format: "mxfp4-pack-quantized" },
      "compressed-tensors",
      { groupSize: 32, bits: 4, mode: "mxfp4" },
    ],
    [
      { quant_method: "compressed-tensors", format: "pack-quantized" },
      "compressed-tensors",
      { groupSize: 32, bits: 4, mode: "affine" },
    ],
    [{ quant_method: "modelopt", quant_algo: "NVFP4" }, "modelopt-nvfp4", { groupSize: 16, bits: 4, mode: "nvfp4" }],
    [{ quant_method: "awq", bits: 4 }, "awq", { groupSize: 128, bits: 4, mode: "affine" }],
    [{ quant_method: "gptq", bits: 4, group_size: 64 }, "gptq", { groupSize: 64, bits: 4, mode: "affine" }],
    [{ group_size: 32, bits: 8 }, "mlx", { groupSize: 32, bits: 8, mode: "affine" }],
  ])("%j", (block, layout, defaults) => {
    for (const config of [{ quantization_config: block }, { text_config: { quantization_config: block } }]) {
      const q = resolve(config);
      expect(q.layout).toBe(layout as typeof q.layout);
      expect(q.defaults).toEqual(defaults as typeof q.defaults);
    }
  });

  test("hf_quant_config.json counts only without a quantization_config", () => {
    const dir = path.join(root, "modelopt");
    mkdirSync(dir);
    put(dir, "hf_quant_config.json", '{"quantization": {"quant_algo": "NVFP4", "group_size": 16}}');
    expect(resolve({}, "modelopt").layout).toBe("modelopt-nvfp4");
    expect(resolve({ quantization_config: { quant_method: "mxfp4" } }, "modelopt").layout).toBe("mlx");
    put(dir, "hf_quant_config.json", '{"quantization": {"quant_algo": "FP8"}}');
    expect(() => resolve({}, "modelopt")).toThrow(/FP8/);
  });

  test.each([
    [{ quant_method: "compressed-tensors", format: "float-quantized" }, /dequantize to bf16 first/],
    [{ quant_method: "modelopt", quant_algo: "FP8" }, /FP8/],
    [{ quant_method: "awq", bits: 8 }, /8 bits/],
    [{ quant_method: "gptq", bits: 4, desc_act: true }, /g_idx/],
  ])("refused: %j", (block, message) => {
    expect(() => resolve({ quantization_config: block })).toThrow(message);
  });
});

describe("refusals by name", () => {
  test("widths: the model, the count and why", () => {
    expect(() => resolve({ quantization: { bits: 7, group_size: 64 } }, "org_seven")).toThrow(
      /org_seven.*7 bits.*fork/,
    );
    expect(() => resolve({ quantization: { bits: 1, group_size: 64 } }, "org_one")).toThrow(
      /org_one.*1 bits.*speculation loses/,
    );
    expect(() => resolve({ quantization: { bits: 1, group_size: 64 } }, "Bonsai-8B")).toThrow(
      /Ternary-Bonsai-27B-mlx-2bit/,
    );
    expect(() => resolve({ quantization: { bits: 4, group_size: 64, "a.b": { bits: 7 } } })).toThrow(/7 bits/);
  });

  test("one bit where the library has it", () => {
    const config = parseConfigText('{"quantization": {"bits": 1, "group_size": 32}}', "config.json");
    const q = resolveQuantization(root, config, { oneBit: true });
    expect(q.forModule("p", 128, triple("p", 128, 1, 32))).toEqual({ groupSize: 32, bits: 1, mode: "affine" });
  });

  test("quantized activations, at the top and in an override", () => {
    expect(() => resolve({ quantization: { mode: "nvfp4", quantize_activations: true } })).toThrow(
      /quantize_activations/,
    );
    expect(() => resolve({ quantization: { bits: 4, p: { mode: "mxfp8", quantize_activations: true } } })).toThrow(
      /p\.quantize_activations/,
    );
  });

  test("unknown modes and impossible groups", () => {
    expect(() => resolve({ quantization: { mode: "fp3" } })).toThrow(/fp3/);
    expect(() => resolve({ quantization: { bits: 4, group_size: 16 } })).toThrow(/16/);
    expect(() => resolve({ quantization: { mode: "nvfp4", group_size: 32 } })).toThrow(/nvfp4/);
  });
});

test("remote code: a note for our own types, else refused with file and key", () => {
  const dir = path.join(root, "remote");
  mkdirSync(dir);
  put(
    dir,
    "config.json",
    '{"model_type": "nanbeige", "auto_map": {"AutoModel": "x.py"}, "text_config": {"model_file": "y.py"}}',
  );
  put(dir, "tokenizer_config.json", '{"auto_map": {}}');
  put(dir, "preprocessor_config.json", "not json");
  const config = readJsonSection(path.join(dir, "config.json"));
  const notes = checkRemoteCode(dir, config, (type) => type === "nanbeige");
  expect(notes).toHaveLength(1);
  expect(notes[0]).toContain("config.json:auto_map");
  expect(() => checkRemoteCode(dir, config, () => false)).toThrow(
    /config\.json:auto_map, config\.json:text_config\.model_file.*nanbeige/,
  );
  put(dir, "config.json", '{"model_type": "x"}');
  expect(checkRemoteCode(dir, readJsonSection(path.join(dir, "config.json")), () => false)).toEqual([]);
});
