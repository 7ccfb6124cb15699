/** A folder that exists for one test file, and builders of the files that the tests damage. */
import { afterAll } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

/** Creates a folder that is removed after the tests of the calling file. */
export function temporaryFolder(): string {
  const dir = mkdtempSync(path.join(tmpdir(), "mlx-dspark-test-"));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** A safetensors file from a header (object or raw text) and data bytes. */
export function safetensorsBytes(header: unknown, data: Uint8Array): Buffer {
  const json = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.byteLength));
  return Buffer.concat([length, json, data]);
}

export interface TinyTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** A valid safetensors file whose tensors lie one after the other, filled with zeros. */
export function tinySafetensors(tensors: Readonly<Record<string, TinyTensor>>): Buffer {
  let at = 0;
  const header: Record<string, unknown> = {};
  for (const [name, { dtype, shape, bytes }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes] };
    at += bytes;
  }
  const text = JSON.stringify(header);
  return safetensorsBytes(text.padEnd(Math.ceil(text.length / 8) * 8), new Uint8Array(at));
}

/** Writes `bytes` and returns the path. */
export function put(dir: string, name: string, bytes: string | Uint8Array): string {
  const file = path.join(dir, name);
  writeFileSync(file, bytes);
  return file;
}
