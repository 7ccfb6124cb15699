/** Reading golden folders: expected.json, and expected.safetensors (float32 only) as typed arrays. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { readSafetensorsHeader } from "../../src/checkpoint/safetensors-header.ts";
import { repoRoot } from "./native.ts";

export interface Expected {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** All tensors of an expected.safetensors. */
export function readExpected(file: string): Map<string, Expected> {
  const header = readSafetensorsHeader(file);
  const bytes = readFileSync(file);
  const out = new Map<string, Expected>();
  for (const [name, tensor] of header.tensors) {
    if (tensor.dtype !== "F32") throw new Error(`${file}: ${name} is ${tensor.dtype}, not F32`);
    const copy = bytes.buffer.slice(
      bytes.byteOffset + tensor.offset,
      bytes.byteOffset + tensor.offset + tensor.bytes,
    ) as ArrayBuffer;
    out.set(name, { shape: tensor.shape, values: new Float32Array(copy) });
  }
  return out;
}

/** Largest absolute difference; infinite when the lengths differ or a value is not a number. */
export function maxDifference(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = Math.abs((a[i] ?? Number.NaN) - (b[i] ?? Number.NaN));
    if (!(difference <= worst)) worst = Number.isNaN(difference) ? Number.POSITIVE_INFINITY : difference;
  }
  return worst;
}

/** Root mean square of the difference relative to that of `b`; infinite when the lengths differ or a value is not a number. */
export function relativeDifference(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  let off = 0;
  let size = 0;
  for (let i = 0; i < a.length; i++) {
    off += ((a[i] ?? Number.NaN) - (b[i] ?? Number.NaN)) ** 2;
    size += (b[i] ?? Number.NaN) ** 2;
  }
  const relative = Math.sqrt(off / size);
  return Number.isNaN(relative) ? Number.POSITIVE_INFINITY : relative;
}

/** The full golden sets beside the repository where they exist, else the selection that the project carries. */
export function goldenRoot(set: string): string {
  const full = join(repoRoot, "..", "shared", "golden", set);
  return existsSync(full) ? full : join(repoRoot, "test/data/golden", set);
}

/** Folders of a golden set whose family is one of `families`. */
export function goldenCases(set: string, families: readonly string[]): string[] {
  const root = goldenRoot(set);
  return readdirSync(root)
    .filter((name) => existsSync(join(root, name, "expected.json")))
    .filter((name) => {
      const config = JSON.parse(readFileSync(join(root, name, "config.json"), "utf8")) as { model_type?: string };
      return families.includes(config.model_type ?? "");
    })
    .sort();
}
