/**
 * Which quantization a checkpoint uses, and the decision for each module of a model: MLX's own `quantization` block, or
 * one of the published `quantization_config` kinds, with per-path overrides and inference from tensor shapes.
 * Rules: models-dense.md §1.2 and §1.4. Nothing here reads a weight.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { type ConfigSection, readJsonSection } from "./config-json.ts";
import { CheckpointError } from "./errors.ts";
import { type ForeignScheme, readForeignScheme } from "./quantization-schemes.ts";

export type QuantizationMode = "affine" | "mxfp4" | "nvfp4" | "mxfp8";

export interface QuantizationSpec {
  readonly groupSize: number;
  readonly bits: number;
  readonly mode: QuantizationMode;
}

/** What the decision needs to know of a tensor. */
export interface TensorShape {
  readonly dtype: string;
  readonly shape: readonly number[];
}

/**
 * How the quantized tensors are stored: MLX triples; or a layout that must be repacked first (see repack.ts).
 * "none": no quantization is declared.
 */
export type QuantizationLayout = "none" | "mlx" | "awq" | "gptq" | "compressed-tensors" | "modelopt-nvfp4";

export interface Quantization {
  readonly layout: QuantizationLayout;
  /** The block's top-level values: what a reader may call the model's quantization. null when none is declared. */
  readonly defaults: QuantizationSpec | null;
  /**
   * Quantization of one Linear, Embedding or expert stack; null = unquantized.
   * @param modulePath parameter name without `.weight`
   * @param inFeatures unquantized input width, from the config
   * @param tensors all tensors by name (after any renaming, in MLX's triple layout)
   * @throws CheckpointError when shapes and declaration disagree, or the width is unsupported
   */
  forModule(modulePath: string, inFeatures: number, tensors: ReadonlyMap<string, TensorShape>): QuantizationSpec | null;
}

export interface QuantizationOptions {
  /** The linked MLX library computes 1-bit affine (0.32.4 does, 0.32.2 does not). */
  readonly oneBit?: boolean;
}

const AFFINE_BITS: ReadonlySet<number> = new Set([2, 3, 4, 5, 6, 8]);
/** What missing keys of a per-path override mean: not the block's top level. */
const OVERRIDE_DEFAULTS: QuantizationSpec = { groupSize: 64, bits: 4, mode: "affine" };
/** The fixed (bits, group) of the floating-point modes. */
const FP_MODES: readonly QuantizationSpec[] = [
  { bits: 4, groupSize: 16, mode: "nvfp4" },
  { bits: 4, groupSize: 32, mode: "mxfp4" },
  { bits: 8, groupSize: 32, mode: "mxfp8" },
];

/**
 * Resolves the quantization of the model folder `dir` from its parsed config.json (and hf_quant_config.json).
 * @throws CheckpointError for declared widths, algorithms or activation quantization that we do not run
 */
export function resolveQuantization(
  dir: string,
  config: ConfigSection,
  options: QuantizationOptions = {},
): Quantization {
  const rules: Rules = { dir, file: config.file, oneBit: options.oneBit ?? false };
  const block = config.section("quantization");
  if (block !== null) return fromBlock(rules, block);
  const declared =
    config.section("quantization_config") ?? config.section("text_config")?.section("quantization_config") ?? null;
  if (declared !== null && !declared.has("quant_method") && declared.has("bits")) return fromBlock(rules, declared);
  const scheme = readForeignScheme(declared ?? hfQuantConfig(dir));
  if (scheme === null) return { layout: "none", defaults: null, forModule: inferring(rules, null) };
  return fromScheme(rules, scheme);
}

interface Rules {
  readonly dir: string;
  readonly file: string;
  readonly oneBit: boolean;
}

function hfQuantConfig(dir: string): ConfigSection | null {
  const file = path.join(dir, "hf_quant_config.json");
  if (!existsSync(file)) return null;
  return readJsonSection(file).section("quantization");
}

function fromBlock(rules: Rules, block: ConfigSection): Quantization {
  refuseActivations(block);
  const defaults = block.has("bits") || block.has("mode") ? readSpec(rules, block) : null;
  // Every override is read now, so that a bad one is refused before any weight is touched.
  const overrides = new Map<string, QuantizationSpec | null>();
  for (const key of block.keys()) {
    const value = block.value(key);
    if (value === false) overrides.set(key, null);
    if (typeof value === "object" && !Array.isArray(value)) {
      const section = block.section(key);
      if (section === null) continue;
      refuseActivations(section);
      overrides.set(key, readSpec(rules, section));
    }
  }
  return { layout: "mlx", defaults, forModule: inferring(rules, overrides) };
}

function fromScheme(rules: Rules, scheme: ForeignScheme): Quantization {
  return { layout: scheme.layout, defaults: scheme.spec, forModule: inferring(rules, null) };
}

function refuseActivations(block: ConfigSection): void {
  if (block.bool("quantize_activations", false)) {
    block.fail("quantize_activations", "quantized activations are not supported; use a weight-only quantization");
  }
}

function readSpec(rules: Rules, section: ConfigSection): QuantizationSpec {
  const mode = section.string("mode", OVERRIDE_DEFAULTS.mode);
  const fp = FP_MODES.find((candidate) => candidate.mode === mode);
  if (mode !== "affine" && fp === undefined) {
    return section.fail("mode", `unknown quantization mode ${JSON.stringify(mode)} (affine, mxfp4, nvfp4, mxfp8)`);
  }
  const bits = section.int("bits", fp?.bits ?? OVERRIDE_DEFAULTS.bits);
  const groupSize = section.size("group_size", fp?.groupSize ?? OVERRIDE_DEFAULTS.groupSize);
  if (fp !== undefined) {
    if (bits !== fp.bits || groupSize !== fp.groupSize) {
      section.fail(
        "mode",
        `${mode} has ${fp.bits} bits and group size ${fp.groupSize}, found ${bits} and ${groupSize}`,
      );
    }
    return fp;
  }
  checkBits(rules, bits);
  if (groupSize !== 32 && groupSize !== 64 && groupSize !== 128) {
    section.fail("group_size", `affine groups of 32, 64 or 128 are supported, found ${groupSize}`);
  }
  return { bits, groupSize, mode: "affine" };
}

/** models-dense.md §1.2: names the model, the width and why, with the way out that exists. */
function checkBits(rules: Rules, bits: number): void {
  if (AFFINE_BITS.has(bits) || (bits === 1 && rules.oneBit)) return;
  const name = path.basename(rules.dir);
  let message = `${name} is quantized to ${bits} bits, and MLX has affine kernels for 2, 3, 4, 5, 6 and 8 bits only`;
  if (bits === 1) {
    message +=
      "; 1-bit weights run with other MLX builds, but speculation loses there (verifying costs as much per row)";
    if (/bonsai/i.test(rules.dir)) message += "; use prism-ml/Ternary-Bonsai-27B-mlx-2bit instead";
  } else {
    message += "; such packs need a vendor's fork of MLX";
  }
  throw new CheckpointError({ file: rules.file, check: "quantization", message });
}

/** The three rules of §1.4: override, no scales, shapes. */
function inferring(
  rules: Rules,
  overrides: ReadonlyMap<string, QuantizationSpec | null> | null,
): Quantization["forModule"] {
  return (modulePath, inFeatures, tensors) => {
    for (const key of spellings(modulePath)) {
      const override = overrides?.get(key);
      if (override === undefined) continue;
      if (override !== null) checkShapes(rules, modulePath, inFeatures, tensors, override);
      return override;
    }
    return inferFromShapes(rules, modulePath, inFeatures, tensors);
  };
}

/** The block's keys use the converted form; a module may be known by the raw form or without its prefix. */
function spellings(modulePath: string): string[] {
  const prefix = "language_model.";
  const bare = modulePath.startsWith(prefix) ? modulePath.slice(prefix.length) : modulePath;
  const raw = /^model\.language_model\.(.*)$/.exec(modulePath)?.[1];
  const out = [modulePath, bare, prefix + bare];
  if (raw !== undefined) out.push(`language_model.model.${raw}`, `model.${raw}`);
  return out;
}

function inferFromShapes(
  rules: Rules,
  modulePath: string,
  inFeatures: number,
  tensors: ReadonlyMap<string, TensorShape>,
): QuantizationSpec | null {
  const scales = tensors.get(`${modulePath}.scales`);
  if (scales === undefined) return null;
  const weight = tensors.get(`${modulePath}.weight`);
  const fail = (message: string): never => {
    throw new CheckpointError({ file: rules.dir, tensor: `${modulePath}.scales`, check: "quantization", message });
  };
  if (weight === undefined) return fail("has no .weight beside it");
  const groupSize = inFeatures / (scales.shape.at(-1) ?? 0);
  const bits = ((weight.shape.at(-1) ?? 0) * 32) / inFeatures;
  if (scales.dtype === "U8") {
    const fp = FP_MODES.find((mode) => mode.bits === bits && mode.groupSize === groupSize);
    return fp ?? fail(`uint8 scales with ${bits} bits and groups of ${groupSize} belong to no known mode`);
  }
  if (groupSize !== 32 && groupSize !== 64 && groupSize !== 128) {
    return fail(`its shape means groups of ${groupSize} for ${inFeatures} inputs; 32, 64 and 128 are supported`);
  }
  if (!Number.isInteger(bits))
    return fail(`weight [${weight.shape}] does not hold ${inFeatures} inputs at a whole bit width`);
  checkBits(rules, bits);
  return { groupSize, bits, mode: "affine" };
}

function checkShapes(
  rules: Rules,
  modulePath: string,
  inFeatures: number,
  tensors: ReadonlyMap<string, TensorShape>,
  spec: QuantizationSpec,
): void {
  const fail = (part: string, message: string): never => {
    throw new CheckpointError({ file: rules.dir, tensor: `${modulePath}.${part}`, check: "quantization", message });
  };
  const declared = `${spec.bits} bits, groups of ${spec.groupSize} (${spec.mode}) declared for ${inFeatures} inputs`;
  const weight = tensors.get(`${modulePath}.weight`) ?? fail("weight", "is missing");
  const scales = tensors.get(`${modulePath}.scales`) ?? fail("scales", `is missing, but ${declared}`);
  if ((weight.shape.at(-1) ?? 0) * 32 !== inFeatures * spec.bits)
    fail("weight", `shape [${weight.shape}]: ${declared}`);
  if ((scales.shape.at(-1) ?? 0) * spec.groupSize !== inFeatures)
    fail("scales", `shape [${scales.shape}]: ${declared}`);
  if ((scales.dtype === "U8") !== (spec.mode !== "affine")) fail("scales", `is ${scales.dtype}: ${declared}`);
}
