/** Reading `golden/drafters`: case.json and the vectors of a case, floats and integers alike. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { readSafetensorsHeader } from "../../src/checkpoint/safetensors-header.ts";
import { goldenRoot } from "./golden.ts";

export interface GoldenRound {
  readonly pending: number;
  readonly n_cached?: number;
  readonly block_ids: readonly number[];
  readonly draft: readonly number[];
  readonly draft_space_argmax?: readonly number[];
  /** The target's choice after each row of [pending, …draft]. */
  readonly verify_argmax: readonly number[];
  readonly accepted_forced: number;
  readonly committed: readonly number[];
  readonly ctx_position_after?: number;
  readonly ctx_rows_after_per_layer?: readonly number[];
  readonly "sampled_draft_T0.8"?: readonly number[];
}

export interface DrafterCase {
  readonly name: string;
  readonly kind: "dspark" | "dflash" | "gguf";
  readonly prompt_ids: readonly number[];
  readonly resolved: Readonly<Record<string, unknown>>;
  readonly resolved_tap_layers: readonly number[];
  readonly ctx_window?: number;
  readonly rounds: readonly GoldenRound[];
  readonly q4_rounds?: readonly GoldenRound[];
  readonly converted_config?: Readonly<Record<string, unknown>>;
  readonly converted_tensors?: Readonly<
    Record<string, { readonly shape: readonly number[]; readonly dtype: string; readonly sha256_of_bytes: string }>
  >;
  readonly greedy: {
    readonly max_new_tokens: number;
    readonly baseline: readonly number[];
    readonly speculative: { readonly tokens: readonly number[]; readonly accept_lengths: readonly number[] };
  };
}

export const drafterRoot = goldenRoot("drafters");

export const drafterCases: readonly string[] = readdirSync(drafterRoot)
  .filter((name) => existsSync(join(drafterRoot, name, "case.json")))
  .sort();

export function readCase(name: string): DrafterCase {
  return JSON.parse(readFileSync(join(drafterRoot, name, "case.json"), "utf8")) as DrafterCase;
}

/** What is loaded as the case's drafter: its folder, or the GGUF file in it. */
export function drafterSource(name: string): string {
  const dir = join(drafterRoot, name, "drafter");
  const gguf = readdirSync(dir).find((file) => file.endsWith(".gguf"));
  return gguf === undefined ? dir : join(dir, gguf);
}

export interface Vector {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** All tensors of a safetensors file as float32; ids are exact in it. */
export function readVectors(file: string): ReadonlyMap<string, Vector> {
  const header = readSafetensorsHeader(file);
  const bytes = readFileSync(file);
  const out = new Map<string, Vector>();
  for (const [name, { dtype, shape, offset, bytes: length }] of header.tensors) {
    const start = bytes.byteOffset + offset;
    const copy = bytes.buffer.slice(start, start + length) as ArrayBuffer;
    if (dtype === "F32") out.set(name, { shape, values: new Float32Array(copy) });
    else if (dtype === "I32") out.set(name, { shape, values: Float32Array.from(new Int32Array(copy)) });
    else if (dtype === "U8") out.set(name, { shape, values: Float32Array.from(new Uint8Array(copy)) });
    else throw new Error(`${file}: ${name} is ${dtype}`);
  }
  return out;
}

/** Largest |a − b| − rtol·|b|; infinite for another length or a value that is no number. */
export function worstExcess(a: Float32Array, b: Float32Array, rtol: number): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    const wanted = b[i] ?? Number.NaN;
    const excess = Math.abs((a[i] ?? Number.NaN) - wanted) - rtol * Math.abs(wanted);
    if (!(excess <= worst)) worst = Number.isNaN(excess) ? Number.POSITIVE_INFINITY : excess;
  }
  return worst;
}
