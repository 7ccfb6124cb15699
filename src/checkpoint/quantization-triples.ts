/**
 * Quantized weights come as triples: `p.weight` (packed uint32), `p.scales`, and for affine `p.biases`. This checks that
 * the parts found in a checkpoint belong together (hub.md §10 set 6) before any module is built from them.
 */
import { CheckpointError } from "./errors.ts";

interface Part {
  readonly file: string;
  readonly dtype: string;
  readonly shape: readonly number[];
}

const FLOATS: ReadonlySet<string> = new Set(["F32", "F16", "BF16"]);
const AFFINE_GROUPS = [32, 64, 128];
const AFFINE_BITS = [1, 2, 3, 4, 5, 6, 8];
/** bits · group size that some mode has: in·bits/32 words for in/group scales. */
const BITS_TIMES_GROUP: ReadonlySet<number> = new Set(AFFINE_GROUPS.flatMap((g) => AFFINE_BITS.map((b) => g * b)));
/** nvfp4 4·16, mxfp4 4·32, mxfp8 8·32. */
const FP_BITS_TIMES_GROUP: ReadonlySet<number> = new Set([64, 128, 256]);

/** @throws CheckpointError naming the first part that does not fit */
export function checkTriples(tensors: ReadonlyMap<string, Part>): void {
  for (const [name, part] of tensors) {
    if (name.endsWith(".biases") && !tensors.has(`${name.slice(0, -7)}.scales`)) {
      throw new CheckpointError({
        file: part.file,
        tensor: name,
        check: "triple",
        message: "has no .scales beside it",
      });
    }
    if (name.endsWith(".scales")) checkTriple(name.slice(0, -7), part, tensors);
  }
}

function checkTriple(path: string, scales: Part, tensors: ReadonlyMap<string, Part>): void {
  const weight = tensors.get(`${path}.weight`);
  const biases = tensors.get(`${path}.biases`);
  const error = (message: string) =>
    new CheckpointError({ file: scales.file, tensor: `${path}.scales`, check: "triple", message });
  // AWQ and GPTQ also call their scales so; their own repacking checks them.
  if (weight === undefined && tensors.has(`${path}.qweight`)) return;
  if (weight === undefined) throw error("has no .weight beside it");
  if (weight.dtype !== "U32") throw error(`its .weight is ${weight.dtype}, packed weights are U32`);

  const words = weight.shape.at(-1) ?? 0;
  const groups = scales.shape.at(-1) ?? 0;
  const leading = weight.shape.slice(0, -1).join(",");
  if (scales.shape.length < 2 || scales.shape.slice(0, -1).join(",") !== leading) {
    throw error(`shape [${scales.shape}] does not go with .weight [${weight.shape}]`);
  }
  const product = groups > 0 ? (words * 32) / groups : 0;
  if (scales.dtype === "U8") {
    if (biases !== undefined) throw error("is uint8 (floating-point quantization), which has no .biases");
    if (!FP_BITS_TIMES_GROUP.has(product)) throw error(`no mode packs ${words} words for ${groups} groups`);
    return;
  }
  if (!FLOATS.has(scales.dtype)) throw error(`is ${scales.dtype}; scales are F32, F16, BF16 or U8`);
  if (biases === undefined) throw error("has no .biases beside it");
  if (biases.shape.join(",") !== scales.shape.join(",")) {
    throw error(`shape [${scales.shape}] differs from .biases [${biases.shape}]`);
  }
  if (!FLOATS.has(biases.dtype)) throw error(`its .biases are ${biases.dtype}`);
  if (!BITS_TIMES_GROUP.has(product))
    throw error(`no bit width and group size pack ${words} words for ${groups} groups`);
}
