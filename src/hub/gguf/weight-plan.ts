/**
 * What each tensor of a GGUF file becomes, decided from headers alone: types that we do not convert are refused before
 * anything is written, and the size of the result is known. Formats: models-dense.md §8.4.
 */
import { CheckpointError } from "../../checkpoint/errors.ts";
import { EXACT_FORMATS, type ExactFormat } from "../../checkpoint/gguf-blocks.ts";
import type { GgufTensor } from "../../checkpoint/gguf-container.ts";
import { DENSE_FORMATS, type DenseFormat } from "../../checkpoint/gguf-dequantize.ts";
import type { GgufSet } from "../../checkpoint/gguf-split.ts";
import type { PlannedTensor } from "../../checkpoint/safetensors-writer.ts";
import type { MappedName } from "./tensor-names.ts";

/** Group size of everything that is quantized here: that of the file's own blocks. */
export const GROUP_SIZE = 32;

/** `copy`: bytes as they are. `exact`: affine, no loss. `dense`: float32. `requantize`: affine, with a loss. */
export type Conversion =
  | { readonly kind: "copy"; readonly dtype: "F32" | "F16" | "BF16" }
  | { readonly kind: "exact"; readonly format: ExactFormat }
  | { readonly kind: "dense"; readonly format: DenseFormat }
  | { readonly kind: "requantize"; readonly format: DenseFormat };

export interface PlannedWeight {
  readonly source: GgufTensor;
  readonly target: MappedName;
  readonly conversion: Conversion;
}

export interface WeightPlan {
  readonly weights: readonly PlannedWeight[];
  /** Type of all scales and biases: float16 where that is exact for every tensor, else float32. */
  readonly scaleDtype: "F16" | "F32";
  /** The file to be written. */
  readonly tensors: readonly PlannedTensor[];
  /** The `quantization` block of config.json; null when nothing is quantized. */
  readonly quantization: Readonly<Record<string, unknown>> | null;
  readonly notes: readonly string[];
}

/**
 * Q6_K, Q3_K and Q2_K tensors stay dense (float32, exact) while they take at most this many bytes together, and are
 * quantized again above it. Derived: dense weights are read whole for every token, and 256 MB is 10 ms at the 25 GB/s of
 * a small machine; a model beyond it would pay for exactness with a visible part of its speed.
 */
export const DENSE_BYTES_MAX = 256 << 20;

const COPIED = new Set(["F32", "F16", "BF16"]);

/** @throws CheckpointError naming the tensor and its type */
export function planWeights(set: GgufSet, names: ReadonlyMap<string, MappedName>, denseBytesMax: number): WeightPlan {
  const sources = [...names].flatMap(([name, target]) => {
    const source = set.tensors.get(name);
    return source === undefined ? [] : [{ source, target }];
  });
  for (const { source, target } of sources) checkTensor(source, target);
  const denseBytes = sources
    .filter(({ source }) => DENSE_FORMATS.has(source.type.name))
    .reduce((sum, { source }) => sum + elements(source) * 4, 0);
  const keepDense = denseBytes <= denseBytesMax;
  const weights = sources.map(({ source, target }) => ({
    source,
    target,
    conversion: conversionOf(source, keepDense),
  }));
  const needsF32 = weights.some(
    ({ conversion: c }) => c.kind === "requantize" || (c.kind === "exact" && !c.format.exactInFloat16),
  );
  const scaleDtype = needsF32 ? "F32" : "F16";
  return {
    weights,
    scaleDtype,
    tensors: weights.flatMap((weight) => targetsOf(weight, scaleDtype)),
    quantization: quantizationBlock(weights),
    notes: lossNotes(weights),
  };
}

/** Rows and columns of a tensor; a vector is a column. */
export function matrixShape(tensor: GgufTensor): { readonly rows: number; readonly columns: number } {
  const [rows = 1, columns = 1] = tensor.shape;
  return { rows, columns };
}

/** Width of the quantized weight, or null when it is not quantized. */
export function quantizedBits(conversion: Conversion): number | null {
  if (conversion.kind === "exact") return conversion.format.bits;
  return conversion.kind === "requantize" ? conversion.format.requantizeBits : null;
}

function elements(tensor: GgufTensor): number {
  return tensor.shape.reduce((a, b) => a * b, 1);
}

function checkTensor(source: GgufTensor, target: MappedName): void {
  const error = (check: "gguf-type" | "shape", message: string) =>
    new CheckpointError({ file: source.file, tensor: source.name, check, message });
  const type = source.type.name;
  const known = COPIED.has(type) || EXACT_FORMATS.has(type) || DENSE_FORMATS.has(type);
  if (!known) {
    const supported = [...COPIED, ...EXACT_FORMATS.keys(), ...DENSE_FORMATS.keys()].join(", ");
    throw error(
      "gguf-type",
      `type ${type} is not supported (${supported} are); use another quantization of this model`,
    );
  }
  const isVector = source.shape.length === 1;
  if (source.shape.length > 2) throw error("shape", `[${source.shape}] is not a matrix or a vector`);
  if (isVector && !COPIED.has(type)) throw error("gguf-type", `a vector of type ${type} is not supported`);
  const { rows } = matrixShape(source);
  const head = target.interleavedHeadRows;
  if (head !== null && (rows % head !== 0 || head % 2 !== 0)) {
    throw error("shape", `${rows} rows are not whole heads of ${head}`);
  }
}

function conversionOf(source: GgufTensor, keepDense: boolean): Conversion {
  const type = source.type.name;
  if (type === "F32" || type === "F16" || type === "BF16") return { kind: "copy", dtype: type };
  const exact = EXACT_FORMATS.get(type);
  if (exact !== undefined) return { kind: "exact", format: exact };
  const format = DENSE_FORMATS.get(type);
  if (format === undefined)
    throw new CheckpointError({ file: source.file, tensor: source.name, check: "gguf-type", message: type });
  return { kind: keepDense ? "dense" : "requantize", format };
}

function targetsOf({ source, target, conversion }: PlannedWeight, scaleDtype: "F16" | "F32"): PlannedTensor[] {
  const { name } = target;
  const bits = quantizedBits(conversion);
  if (bits === null)
    return [{ name, dtype: conversion.kind === "copy" ? conversion.dtype : "F32", shape: source.shape }];
  const { rows, columns } = matrixShape(source);
  const groups = [rows, columns / GROUP_SIZE];
  return [
    { name, dtype: "U32", shape: [rows, (columns * bits) / 32] },
    { name: scalesName(name), dtype: scaleDtype, shape: groups },
    { name: biasesName(name), dtype: scaleDtype, shape: groups },
  ];
}

export function scalesName(weight: string): string {
  return weight.replace(/\.weight$/, ".scales");
}

export function biasesName(weight: string): string {
  return weight.replace(/\.weight$/, ".biases");
}

/** The most frequent width is the block's own; every other module is named with its width. */
function quantizationBlock(weights: readonly PlannedWeight[]): Record<string, unknown> | null {
  const counts = new Map<number, number>();
  for (const { conversion } of weights) {
    const bits = quantizedBits(conversion);
    if (bits !== null) counts.set(bits, (counts.get(bits) ?? 0) + 1);
  }
  const common = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0]?.[0];
  if (common === undefined) return null;
  const block: Record<string, unknown> = { group_size: GROUP_SIZE, bits: common, mode: "affine" };
  for (const { target, conversion } of weights) {
    const bits = quantizedBits(conversion);
    if (bits === null || bits === common) continue;
    block[target.name.replace(/\.weight$/, "")] = { group_size: GROUP_SIZE, bits, mode: "affine" };
  }
  return block;
}

function lossNotes(weights: readonly PlannedWeight[]): string[] {
  const lossy = new Map<string, { count: number; bits: number }>();
  for (const { source, conversion } of weights) {
    if (conversion.kind !== "requantize") continue;
    const entry = lossy.get(source.type.name) ?? { count: 0, bits: conversion.format.requantizeBits };
    lossy.set(source.type.name, { ...entry, count: entry.count + 1 });
  }
  return [...lossy].map(
    ([type, { count, bits }]) =>
      `${count} ${type} tensors were quantized again to ${bits} bits in groups of ${GROUP_SIZE}, with a small loss; all other weights are exact`,
  );
}
