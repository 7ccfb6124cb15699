/** Plain arrays out of a small safetensors file, and the meaning of affine triples, for comparisons in tests. */
import { readFileSync } from "node:fs";
import { readSafetensorsHeader } from "../../src/checkpoint/safetensors-header.ts";

export interface Arrays {
  readonly names: readonly string[];
  bytes(name: string): Uint8Array<ArrayBuffer>;
  floats(name: string): Float32Array<ArrayBuffer>;
  words(name: string): Uint32Array<ArrayBuffer>;
  dtype(name: string): string;
  shape(name: string): readonly number[];
  /** Any float type, widened. */
  widened(name: string): Float32Array<ArrayBuffer>;
}

export function loadArrays(file: string): Arrays {
  const header = readSafetensorsHeader(file);
  const content = readFileSync(file);
  const entry = (name: string) => {
    const found = header.tensors.get(name);
    if (found === undefined) throw new Error(`${file} has no ${name}`);
    return found;
  };
  const bytes = (name: string) => {
    const { offset, bytes: length } = entry(name);
    return Uint8Array.from(content.subarray(offset, offset + length));
  };
  const widened = (name: string) => {
    const raw = bytes(name).buffer;
    const { dtype } = entry(name);
    if (dtype === "F32") return new Float32Array(raw);
    if (dtype === "F16") return new Float32Array(new Float16Array(raw));
    if (dtype !== "BF16") throw new Error(`${name} is ${dtype}`);
    return new Float32Array(Uint32Array.from(new Uint16Array(raw), (half) => half << 16).buffer);
  };
  return {
    names: [...header.tensors.keys()],
    bytes,
    floats: (name) => new Float32Array(bytes(name).buffer),
    words: (name) => new Uint32Array(bytes(name).buffer),
    dtype: (name) => entry(name).dtype,
    shape: (name) => entry(name).shape,
    widened,
  };
}

/** scale · q + bias in float32 for groups of 32. */
export function dequantizeAffine(
  words: Uint32Array,
  scales: Float32Array,
  biases: Float32Array,
  bits: number,
): Float32Array<ArrayBuffer> {
  const out = new Float32Array(scales.length * 32);
  for (let i = 0; i < out.length; i++) {
    const bit = i * bits;
    const group = i >> 5;
    const low = (words[bit >> 5] ?? 0) >>> (bit & 31);
    const spill = (bit & 31) + bits - 32;
    const high = spill > 0 ? (words[(bit >> 5) + 1] ?? 0) << (bits - spill) : 0;
    const q = (low | high) & ((1 << bits) - 1);
    out[i] = Math.fround(Math.fround((scales[group] ?? 0) * q) + (biases[group] ?? 0));
  }
  return out;
}
