/**
 * The `quantization_config` kinds that other tools publish, reduced to a layout and MLX's own words (group size, bits,
 * mode). Source: the table in models-dense.md §1.4. An unknown method means an unquantized load.
 */
import type { ConfigSection } from "./config-json.ts";
import type { QuantizationLayout, QuantizationSpec } from "./quantization.ts";

export interface ForeignScheme {
  readonly layout: Exclude<QuantizationLayout, "none">;
  readonly spec: QuantizationSpec;
}

/**
 * @param block `quantization_config`, or the `quantization` object of hf_quant_config.json (which has no quant_method)
 * @throws CheckpointError for an algorithm of a known method that we do not run
 */
export function readForeignScheme(block: ConfigSection | null): ForeignScheme | null {
  if (block === null) return null;
  const method = block.string("quant_method", block.has("quant_algo") ? "modelopt" : "");
  switch (method) {
    case "mxfp4":
      return { layout: "mlx", spec: { groupSize: 32, bits: 4, mode: "mxfp4" } };
    case "mxfp8":
      return { layout: "mlx", spec: { groupSize: 32, bits: 8, mode: "mxfp8" } };
    case "fp8":
      return isMxfp8(block) ? { layout: "mlx", spec: { groupSize: 32, bits: 8, mode: "mxfp8" } } : null;
    case "compressed-tensors":
      return compressedTensors(block);
    case "modelopt":
      return modelopt(block);
    case "awq":
    case "gptq":
      return fourBit(method, block);
    default:
      return null;
  }
}

function isMxfp8(block: ConfigSection): boolean {
  const size = block.numbers("weight_block_size", []);
  return block.string("scale_fmt", "") === "ue8m0" && size.length === 2 && size.every((n) => n === 32);
}

function compressedTensors(block: ConfigSection): ForeignScheme {
  const format = block.string("format", "");
  switch (format) {
    case "nvfp4-pack-quantized":
      return { layout: "compressed-tensors", spec: { groupSize: 16, bits: 4, mode: "nvfp4" } };
    case "mxfp4-pack-quantized":
      return { layout: "compressed-tensors", spec: { groupSize: 32, bits: 4, mode: "mxfp4" } };
    case "pack-quantized":
      return { layout: "compressed-tensors", spec: { groupSize: 32, bits: 4, mode: "affine" } };
    default:
      return block.fail(
        "format",
        `compressed-tensors ${JSON.stringify(format)} is not supported: dequantize to bf16 first`,
      );
  }
}

function modelopt(block: ConfigSection): ForeignScheme {
  const algorithm = block.string("quant_algo", block.section("quantization")?.string("quant_algo", "") ?? "");
  if (algorithm !== "NVFP4") {
    block.fail(
      "quant_algo",
      `ModelOpt ${JSON.stringify(algorithm)} is not supported (NVFP4 is): dequantize to bf16 first`,
    );
  }
  const groupSize = block.size("group_size", 16);
  if (groupSize !== 16) block.fail("group_size", `NVFP4 has groups of 16, found ${groupSize}`);
  return { layout: "modelopt-nvfp4", spec: { groupSize, bits: 4, mode: "nvfp4" } };
}

function fourBit(layout: "awq" | "gptq", block: ConfigSection): ForeignScheme {
  const bits = block.int("bits", block.int("w_bit", 4));
  if (bits !== 4) block.fail("bits", `${layout} with ${bits} bits is not supported (4 bits are)`);
  const groupSize = block.int("group_size", block.int("q_group_size", 128));
  if (groupSize !== 32 && groupSize !== 64 && groupSize !== 128) {
    block.fail("group_size", `groups of 32, 64 or 128 are supported, found ${groupSize}`);
  }
  if (layout === "gptq" && block.bool("desc_act", false)) {
    block.fail("desc_act", "activation order (g_idx) is not supported: use a pack without it");
  }
  return { layout, spec: { groupSize, bits, mode: "affine" } };
}
