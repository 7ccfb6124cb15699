/** The float32 tensors of a safetensors file that also holds others. */
import { readFileSync } from "node:fs";
import { readSafetensorsHeader } from "../../src/checkpoint/safetensors-header.ts";
import type { Expected } from "../support/golden.ts";

export function readFloats(file: string): Map<string, Expected> {
  const bytes = readFileSync(file);
  const out = new Map<string, Expected>();
  for (const [name, { dtype, shape, offset, bytes: length }] of readSafetensorsHeader(file).tensors) {
    if (dtype !== "F32") continue;
    const values = new Float32Array(length / 4);
    new Uint8Array(values.buffer).set(bytes.subarray(offset, offset + length));
    out.set(name, { shape, values });
  }
  return out;
}
