/**
 * ModelOpt's NVFP4 drafters, unpacked once: each packed matrix becomes bfloat16, the quantization's own tensors and keys
 * go. The result is quantized at load as any drafter is. drafters.md §3.2.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { writeDurably } from "../../checkpoint/built-folder.ts";
import { type ConfigSection, readJsonSection } from "../../checkpoint/config-json.ts";
import { decodeNvfp4 } from "../../checkpoint/nvfp4-decode.ts";
import { type Checkpoint, openCheckpoint, readTensorBytes } from "../../checkpoint/safetensors-set.ts";
import { type PlannedTensor, SafetensorsWriter } from "../../checkpoint/safetensors-writer.ts";
import { DrafterError } from "../errors.ts";

/** Tensors that belong to the packing. */
const PACKING = /\.(weight_scale|weight_scale_2|input_scale)$|\.[kv]_scale$/;
const QUANTIZATION_KEYS: ReadonlySet<string> = new Set(["quantization_config", "quantization"]);

export function isModelOpt(dir: string, config: ConfigSection): boolean {
  if (config.section("quantization_config")?.string("quant_method", "") === "modelopt") return true;
  const file = path.join(dir, "hf_quant_config.json");
  if (!existsSync(file)) return false;
  const algorithm = readJsonSection(file).section("quantization")?.string("quant_algo", "") ?? "";
  return algorithm.includes("NVFP4");
}

/** Writes config.json and model.safetensors of the folder `source` into the empty folder `dir`. */
export function writeUnpackedNvfp4(source: string, config: ConfigSection, dir: string): void {
  const checkpoint = openCheckpoint(source, { drafter: true });
  const names = [...checkpoint.tensors.keys()].filter((name) => !PACKING.test(name));
  const plan = names.map((name) => planned(checkpoint, name));
  const writer = new SafetensorsWriter(path.join(dir, "model.safetensors"), plan);
  try {
    for (const name of names) writer.write(name, unpacked(checkpoint, name));
    writer.finish();
  } finally {
    writer.close();
  }
  writeDurably(path.join(dir, "config.json"), `${JSON.stringify(plainConfig(checkpoint, config))}\n`);
}

/** Without quantization; which heads there are is said by the tensors, since such exports leave the keys out. */
function plainConfig({ tensors }: Checkpoint, config: ConfigSection): Record<string, unknown> {
  const kept = Object.entries(config.json).filter(([key]) => !QUANTIZATION_KEYS.has(key));
  return {
    ...Object.fromEntries(kept),
    enable_confidence_head: tensors.has("confidence_head.proj.weight"),
    has_lm_head: tensors.has("lm_head.weight"),
  };
}

function isPacked({ tensors }: Checkpoint, name: string): boolean {
  return name.endsWith(".weight") && tensors.has(`${name}_scale`);
}

function planned(checkpoint: Checkpoint, name: string): PlannedTensor {
  const place = checkpoint.tensors.get(name);
  const [out = 0, half = 0] = place?.shape ?? [];
  if (!isPacked(checkpoint, name)) return { name, dtype: place?.dtype ?? "F32", shape: place?.shape ?? [] };
  if (place?.dtype !== "U8" || place.shape.length !== 2) {
    const message = `${name} is ${place?.dtype} with a scale beside it; of ModelOpt's formats NVFP4 is read`;
    throw new DrafterError(checkpoint.dir, "nvfp4", message);
  }
  return { name, dtype: "BF16", shape: [out, half * 2] };
}

function unpacked(checkpoint: Checkpoint, name: string): Uint8Array {
  const bytes = readTensorBytes(checkpoint, name);
  if (!isPacked(checkpoint, name)) return bytes;
  const factorName = `${name}_scale_2`;
  const factor = checkpoint.tensors.get(factorName);
  if (factor?.dtype !== "F32" || factor.bytes !== 4) {
    throw new DrafterError(checkpoint.dir, "nvfp4", `${name} needs ${factorName}, one float32`);
  }
  const scale2 = new DataView(readTensorBytes(checkpoint, factorName).buffer).getFloat32(0, true);
  const values = decodeNvfp4(bytes, readTensorBytes(checkpoint, `${name}_scale`), scale2);
  return new Uint8Array(values.buffer);
}
