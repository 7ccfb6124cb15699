/**
 * The CPU backend's primitives (shim/dspark_cpu.h) over handles: lazy ops like those of ops.ts, for float32 rows on a CPU
 * stream, and the native objects that they read. Objects are owned by their maker and freed by it; work under way keeps
 * what it needs.
 */
import { adopt, commit, failure, type MlxArray, slot } from "./array.ts";
import type { Handle } from "./bindings.ts";
import { cString } from "./c-string.ts";
import { lastError, native, stream, textAt } from "./native.ts";
import type { QuantMode } from "./ops.ts";

declare const brand: unique symbol;
/** A weight matrix [out, in] in the kernels' own layout, by handle. */
export type PackedMatrix = number & { readonly [brand]: "PackedMatrix" };
/** The constants of a layer's self-attention, by handle. */
export type AttentionPlan = number & { readonly [brand]: "AttentionPlan" };
/** Keys and values of one layer and sequence, by handle. */
export type KvStore = number & { readonly [brand]: "KvStore" };

const NO_MATRIX = 0 as PackedMatrix;
const TWO_32 = 4294967296;
const resultCell = new Uint32Array(2);
let alive = 0;

/** Native objects of this thread that are not freed yet: for leak tests. */
export function liveCpuObjects(): number {
  return alive;
}

/** The object that a call has written to `resultCell`. */
function made(status: number, op: string, ...inputs: readonly MlxArray[]): number {
  if (status !== 0) throw failure(op, ...inputs);
  alive++;
  return (resultCell[1] as number) * TWO_32 + (resultCell[0] as number);
}

function freed(status: number, op: string): void {
  if (status !== 0) throw lastError(op);
  alive--;
}

/** Kernels' instruction set: "avx512", "avx2", "neon" or "portable". */
export function cpuIsa(): string {
  const name = native.dspark_cpu_isa();
  if (name === null) throw lastError("cpu_isa");
  return textAt(name);
}

/** Threads that share a step's work, this one's stream thread included. */
export function cpuThreads(): number {
  const cell = new Int32Array(1);
  if (native.dspark_cpu_threads(cell) !== 0) throw lastError("cpu_threads");
  return cell[0] as number;
}

/** @param threads from 1 to 1024; null: as many as at the start (shim: 0) */
export function setCpuThreads(threads: number | null): void {
  if (native.dspark_cpu_set_threads(threads ?? 0) !== 0) throw lastError("cpu_set_threads");
}

/** Bytes of packed weights, keys and values, which MLX's own count does not hold. */
export function cpuBytes(): number {
  return Number(native.dspark_cpu_bytes());
}

/**
 * Packs an MLX matrix, or with `mode` null a plain one. The arrays are evaluated; they stay the caller's.
 * @param bias float32 [out] that is added to every product, or NONE
 */
export function packMatrix(
  weight: MlxArray,
  scales: MlxArray,
  biases: MlxArray,
  groupSize: number,
  bits: number,
  mode: QuantMode | null,
  bias: MlxArray,
): PackedMatrix {
  const name = cString(mode ?? "");
  const status = native.dspark_cpu_pack(resultCell, weight, scales, biases, groupSize, bits, name, bias);
  return made(status, "cpu_pack", weight, scales, biases, bias) as PackedMatrix;
}

export function freePackedMatrix(matrix: PackedMatrix): void {
  freed(native.dspark_cpu_matrix_free(matrix), "cpu_matrix_free");
}

/**
 * x · Mᵀ (+ its bias)
 * @param outputs only so many first columns, rounded up to a multiple of 16; 0: all
 */
export function packedMatmul(x: MlxArray, matrix: PackedMatrix, outputs = 0): MlxArray {
  if (native.dspark_cpu_matmul(slot(), x, matrix, outputs, stream) !== 0) throw failure("cpu_matmul", x);
  return commit();
}

/** residual + x · Mᵀ (+ its bias) */
export function packedMatmulAdd(x: MlxArray, matrix: PackedMatrix, residual: MlxArray): MlxArray {
  if (native.dspark_cpu_matmul_add(slot(), x, matrix, residual, stream) !== 0) {
    throw failure("cpu_matmul_add", x, residual);
  }
  return commit();
}

/** The norm of x times one to three matrices, results side by side. */
export function normMatmul(
  x: MlxArray,
  norm: MlxArray,
  eps: number,
  a: PackedMatrix,
  b: PackedMatrix = NO_MATRIX,
  c: PackedMatrix = NO_MATRIX,
): MlxArray {
  if (native.dspark_cpu_norm_matmul(slot(), x, norm, eps, a, b, c, stream) !== 0) {
    throw failure("cpu_norm_matmul", x, norm);
  }
  return commit();
}

/** x + (act(norm(x) · gateᵀ) · (norm(x) · upᵀ)) · downᵀ */
export function feedForward(
  x: MlxArray,
  norm: MlxArray,
  eps: number,
  gate: PackedMatrix,
  up: PackedMatrix,
  down: PackedMatrix,
  activation: "silu" | "gelu_tanh",
): MlxArray {
  const code = activation === "silu" ? 0 : 1;
  if (native.dspark_cpu_feed_forward(slot(), x, norm, eps, gate, up, down, code, stream) !== 0) {
    throw failure("cpu_feed_forward", x, norm);
  }
  return commit();
}

/** The norm as the fused primitives compute it. */
export function packedNorm(x: MlxArray, norm: MlxArray, eps: number): MlxArray {
  if (native.dspark_cpu_norm(slot(), x, norm, eps, stream) !== 0) throw failure("cpu_norm", x, norm);
  return commit();
}

/** Rows of a packed table as float32 [count, in]. */
export function packedRows(ids: MlxArray, table: PackedMatrix): MlxArray {
  if (native.dspark_cpu_embed(slot(), ids, table, stream) !== 0) throw failure("cpu_embed", ids);
  return commit();
}

/** Cosines, then sines, of position · rate for each rate, times `magnitude`: [count, 2·rates]. */
export function ropeTable(positions: MlxArray, rates: Float64Array, magnitude: number): MlxArray {
  if (native.dspark_cpu_rope_table(slot(), positions, rates, rates.length, magnitude, stream) !== 0) {
    throw failure("cpu_rope_table", positions);
  }
  return commit();
}

export interface AttentionShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly scale: number;
  /** Rotated features; 0: none. */
  readonly ropeDims: number;
  readonly interleaved: boolean;
  /** float32 [headDim], or NONE. */
  readonly qNorm: MlxArray;
  readonly qEps: number;
  readonly kNorm: MlxArray;
  readonly kEps: number;
  /** 0: none. */
  readonly softCap: number;
  /** float32 [heads], or NONE. */
  readonly sinks: MlxArray;
}

export function newAttentionPlan(shape: AttentionShape): AttentionPlan {
  const { heads, kvHeads, headDim, scale, ropeDims, interleaved, qNorm, qEps, kNorm, kEps, softCap, sinks } = shape;
  const status = native.dspark_cpu_attention_new(
    resultCell,
    heads,
    kvHeads,
    headDim,
    scale,
    ropeDims,
    interleaved,
    qNorm,
    qEps,
    kNorm,
    kEps,
    softCap,
    sinks,
  );
  return made(status, "cpu_attention", qNorm, kNorm, sinks) as AttentionPlan;
}

export function freeAttentionPlan(plan: AttentionPlan): void {
  freed(native.dspark_cpu_attention_free(plan), "cpu_attention_free");
}

const FORMATS = { float32: 0, float16: 1, q8: 2, q4: 3 } as const;
export type KvFormat = keyof typeof FORMATS;

/** @param groupSize features that share a scale, for q8 and q4: a multiple of 32 that divides headDim */
export function newKvStore(kvHeads: number, headDim: number, format: KvFormat, groupSize: number): KvStore {
  return made(native.dspark_cpu_kv_new(resultCell, kvHeads, headDim, FORMATS[format], groupSize), "cpu_kv") as KvStore;
}

/** A twin that shares what is held, each copying what it writes to. Every step of `store` must have been evaluated. */
export function forkKvStore(store: KvStore): KvStore {
  return made(native.dspark_cpu_kv_fork(resultCell, store), "cpu_kv_fork") as KvStore;
}

export function freeKvStore(store: KvStore): void {
  freed(native.dspark_cpu_kv_free(store), "cpu_kv_free");
}

export function kvStoreBytes(store: KvStore): number {
  return Number(native.dspark_cpu_kv_bytes(store));
}

/** The first token that is still held. */
export function kvStoreFirst(store: KvStore): number {
  return native.dspark_cpu_kv_first(store);
}

/** One sequence's part of a step. */
export interface AttendedRow {
  readonly store: KvStore;
  /** Token of the sequence's step before, or NONE. */
  readonly after: MlxArray;
  readonly start: number;
  readonly count: number;
  /** Tokens that a query sees; 0: all. */
  readonly window: number;
  /** Of a block: the first token of the store that any of its slots sees. */
  readonly first?: number;
}

const WORDS_PER_ROW = 8;
let rowCells = new Int32Array(64 * WORDS_PER_ROW);
const secondCell = new Uint32Array(2);

function putHandle(at: number, handle: Handle): void {
  rowCells[at] = handle | 0;
  rowCells[at + 1] = Math.floor(handle / TWO_32);
}

/** The rows as the primitives take them, till the next call. */
export function rowsAsCells(rows: readonly AttendedRow[]): Int32Array {
  if (rows.length * WORDS_PER_ROW > rowCells.length) rowCells = new Int32Array(rows.length * WORDS_PER_ROW * 2);
  for (const [index, row] of rows.entries()) {
    const at = index * WORDS_PER_ROW;
    putHandle(at, row.store);
    putHandle(at + 2, row.after);
    rowCells[at + 4] = row.start;
    rowCells[at + 5] = row.count;
    rowCells[at + 6] = row.window;
    rowCells[at + 7] = row.first ?? 0;
  }
  return rowCells;
}

/** Where a call writes its second result. */
export function secondSlot(): Uint32Array {
  secondCell.fill(0);
  return secondCell;
}

/** The second result that a successful call has written there. */
export function commitSecond(op: string): MlxArray {
  return adopt((secondCell[1] as number) * TWO_32 + (secondCell[0] as number), op);
}

/** The weights of a self-attention block: its norm, float32 [features], and the projections. */
export interface AttentionWeights {
  readonly norm: MlxArray;
  readonly eps: number;
  readonly q: PackedMatrix;
  readonly k: PackedMatrix;
  readonly v: PackedMatrix;
  readonly o: PackedMatrix;
}

/**
 * x + o(attention(norm(x))): projects, rotates, appends and attends. x [tokens, features] of all rows behind each other;
 * `rope` from ropeTable, or NONE. Returns [tokens, features] and the token that each row's next step waits for.
 */
export function selfAttention(
  plan: AttentionPlan,
  { norm, eps, q, k, v, o }: AttentionWeights,
  x: MlxArray,
  rope: MlxArray,
  rows: readonly AttendedRow[],
): { out: MlxArray; token: MlxArray } {
  const [res, second, cells, count] = [slot(), secondSlot(), rowsAsCells(rows), rows.length];
  if (native.dspark_cpu_self_attention(res, second, plan, x, norm, eps, q, k, v, o, rope, cells, count, stream) !== 0) {
    throw failure("cpu_self_attention", x, norm, rope);
  }
  const out = commit();
  return { out, token: commitSecond("cpu_self_attention") };
}
