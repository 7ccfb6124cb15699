/**
 * Array handles and their lifetime. A handle is the address of an `mlx::core::array` as a plain number, so that an op
 * makes no JavaScript object. Handles made inside `scope` are freed together when it ends, but for those that `keep`
 * took out; a kept handle is owned by its holder and freed by `free`. Nothing waits for the garbage collector.
 *
 * All handles of open scopes stand in one stack of native memory; an op writes its result straight into the next slot.
 */
import { type Pointer, ptr, read, toArrayBuffer } from "bun:ffi";
import { MlxError } from "./error.ts";
import { lastError, native, stream } from "./native.ts";

declare const brand: unique symbol;
/** A lazy n-dimensional MLX array, by handle. */
export type MlxArray = number & { readonly [brand]: "MlxArray" };

/** Stands for an absent optional argument. */
export const NONE = 0 as MlxArray;

const DTYPES = [
  "bool",
  "uint8",
  "uint16",
  "uint32",
  "uint64",
  "int8",
  "int16",
  "int32",
  "int64",
  "float16",
  "float32",
  "float64",
  "bfloat16",
  "complex64",
] as const;
export type Dtype = (typeof DTYPES)[number];

/** mlx_dtype code of a dtype. */
export function dtypeCode(dtype: Dtype): number {
  return DTYPES.indexOf(dtype);
}

const WORDS_PER_SLOT = 2;
const BYTES_PER_SLOT = 8;
const TWO_32 = 4294967296;

let words = new Uint32Array(8192 * WORDS_PER_SLOT);
let base = 0;
let count = 0;
let depth = 0;
/** Kept handles: freeing anything else would corrupt memory, so that it is refused. */
const owned = new Set<number>();

/** Address of the slot for the next result; it holds zero, which makes mlx-c allocate a new handle. */
export function slot(): number {
  if (depth === 0) throw new MlxError("scope", "an array was made outside of scope(): nothing would free it");
  const at = count * WORDS_PER_SLOT;
  if (at === words.length) {
    const larger = new Uint32Array(words.length * 2);
    larger.set(words);
    words = larger;
    base = 0;
  }
  if (base === 0) base = ptr(words);
  return base + count * BYTES_PER_SLOT;
}

/** Takes the handle that a successful call has written to `slot()`. */
export function commit(): MlxArray {
  const at = count * WORDS_PER_SLOT;
  count++;
  return ((words[at + 1] as number) * TWO_32 + (words[at] as number)) as MlxArray;
}

/** Puts a handle that a constructor returned on the stack; null is a failed call. */
export function adopt(handle: number | null, op: string): MlxArray {
  if (handle === null) throw lastError(op);
  if (depth === 0) native.mlx_array_free(handle);
  slot();
  const at = count * WORDS_PER_SLOT;
  words[at] = handle >>> 0;
  words[at + 1] = Math.floor(handle / TWO_32);
  count++;
  return handle as MlxArray;
}

/**
 * Runs `body` and frees every handle made in it except those given to `keep`. Scopes nest. Evaluate *after* the scope
 * that built the graph: a temporary that is still held keeps MLX from working in place.
 */
export function scope<T>(body: () => T): T {
  const start = count;
  depth++;
  try {
    return body();
  } finally {
    depth--;
    if (count > start) {
      if (base === 0) base = ptr(words);
      native.dspark_free_arrays((base + start * BYTES_PER_SLOT) as Pointer, count - start);
      words.fill(0, start * WORDS_PER_SLOT, count * WORDS_PER_SLOT);
      count = start;
    }
  }
}

/** Takes `x` out of the open scopes: the caller owns it and must `free` it. */
export function keep(x: MlxArray): MlxArray {
  const low = x >>> 0;
  const high = Math.floor(x / TWO_32);
  for (let i = count - 1; i >= 0; i--) {
    const at = i * WORDS_PER_SLOT;
    if (words[at] === low && words[at + 1] === high) {
      const last = (count - 1) * WORDS_PER_SLOT;
      // The hole is closed by the newest handle, which only ever moves to an outer or the same scope's range.
      words[at] = words[last] as number;
      words[at + 1] = words[last + 1] as number;
      words[last] = 0;
      words[last + 1] = 0;
      count--;
      owned.add(x);
      return x;
    }
  }
  throw new MlxError("keep", "the handle belongs to no open scope (kept twice, or freed)");
}

/**
 * Frees an owned handle. The data lives on while other arrays or pending work need it.
 * @throws MlxError when the handle is not owned: a scope's, or freed before
 */
export function free(x: MlxArray): void {
  if (!owned.delete(x)) throw new MlxError("free", "the handle is not owned (never kept, or freed twice)");
  if (native.mlx_array_free(x) !== 0) throw lastError("free");
}

/** Handles alive on this thread: those of open scopes and the owned ones. Flat over a long generation. */
export function liveArrays(): number {
  return count + owned.size;
}

export function ndim(x: MlxArray): number {
  return Number(native.mlx_array_ndim(x));
}

/** Length of one axis; negative axes count from the end. */
export function dim(x: MlxArray, axis: number): number {
  return native.mlx_array_dim(x, axis < 0 ? axis + ndim(x) : axis);
}

export function shapeOf(x: MlxArray): number[] {
  return Array.from({ length: ndim(x) }, (_, axis) => native.mlx_array_dim(x, axis));
}

export function dtypeOf(x: MlxArray): Dtype {
  return DTYPES[native.mlx_array_dtype(x)] as Dtype;
}

/** Number of elements. */
export function sizeOf(x: MlxArray): number {
  return Number(native.mlx_array_size(x));
}

/** Bytes of the elements. */
export function bytesOf(x: MlxArray): number {
  return Number(native.mlx_array_nbytes(x));
}

/** The error of a failed op, with the shapes of its arguments. */
export function failure(op: string, ...inputs: readonly MlxArray[]): MlxError {
  return lastError(op, inputs.map(describe));
}

function describe(x: MlxArray): string {
  return x === NONE ? "none" : `${dtypeOf(x)}[${shapeOf(x).join(",")}]`;
}

// --- data in ---

const shapeCells = new Int32Array(8);

function newFromData(data: NodeJS.TypedArray, shape: readonly number[], dtype: Dtype): MlxArray {
  const expected = shape.reduce((product, length) => product * length, 1);
  if (expected !== data.length) {
    throw new MlxError("array", `${data.length} values do not fill the shape [${shape.join(",")}]`);
  }
  shapeCells.set(shape);
  // An empty buffer has no address; MLX copies zero bytes from whatever it is given.
  const source = data.length === 0 ? shapeCells : data;
  return adopt(native.mlx_array_new_data(source, shapeCells, shape.length, dtypeCode(dtype)), "array");
}

/** Copies values into a new int32 array. */
export function int32Array(values: ArrayLike<number>, shape: readonly number[] = [values.length]): MlxArray {
  return newFromData(values instanceof Int32Array ? values : Int32Array.from(values), shape, "int32");
}

/** Copies values into a new uint32 array. */
export function uint32Array(values: ArrayLike<number>, shape: readonly number[] = [values.length]): MlxArray {
  return newFromData(values instanceof Uint32Array ? values : Uint32Array.from(values), shape, "uint32");
}

/** Copies values into a new float32 array. */
export function float32Array(values: ArrayLike<number>, shape: readonly number[] = [values.length]): MlxArray {
  return newFromData(values instanceof Float32Array ? values : Float32Array.from(values), shape, "float32");
}

/** Copies values into a new bool array; each byte must be 0 or 1, others are not normalized. */
export function boolArray(values: Uint8Array, shape: readonly number[] = [values.length]): MlxArray {
  return newFromData(values, shape, "bool");
}

/** A scalar of the given dtype: rounded to it first, as `x * 3.87` does in the other MLX languages. */
export function scalar(value: number, dtype: Dtype): MlxArray {
  const wide = adopt(native.mlx_array_new_float32(value), "scalar");
  if (dtype === "float32") return wide;
  if (native.mlx_astype(slot(), wide, dtypeCode(dtype), stream) !== 0) throw failure("astype", wide);
  return commit();
}

// --- evaluation and data out ---

let evalCells = new Uint32Array(256);

function handlesOf(arrays: readonly MlxArray[]): Uint32Array {
  if (arrays.length * WORDS_PER_SLOT > evalCells.length) evalCells = new Uint32Array(arrays.length * 4);
  for (let i = 0; i < arrays.length; i++) {
    const handle = arrays[i] as number;
    evalCells[i * WORDS_PER_SLOT] = handle >>> 0;
    evalCells[i * WORDS_PER_SLOT + 1] = Math.floor(handle / TWO_32);
  }
  return evalCells;
}

/** Computes the arrays and waits. */
export function evaluate(arrays: readonly MlxArray[]): void {
  if (arrays.length > 0 && native.dspark_eval(handlesOf(arrays), arrays.length) !== 0) throw failure("eval");
}

/** Schedules the arrays' computation on the stream and returns at once. */
export function asyncEvaluate(arrays: readonly MlxArray[]): void {
  if (arrays.length > 0 && native.dspark_async_eval(handlesOf(arrays), arrays.length) !== 0)
    throw failure("async_eval");
}

/** Joins arrays along `axis`; a single one is returned as it is. */
export function concatenate(arrays: readonly MlxArray[], axis: number): MlxArray {
  const first = arrays[0];
  if (arrays.length === 1 && first !== undefined) return first;
  if (native.dspark_concatenate(slot(), handlesOf(arrays), arrays.length, axis, stream) !== 0) {
    throw failure("concatenate", ...arrays);
  }
  return commit();
}

/** Address of the evaluated, row-contiguous elements. */
function dataAddress(x: MlxArray): Pointer {
  if (native.mlx_array_eval(x) !== 0) throw failure("eval", x);
  return Number(native.mlx_array_data_uint8(x)) as Pointer;
}

/** The first element of a non-empty int32 or uint32 array, evaluated if need be, without a copy of the rest. */
export function firstInt(x: MlxArray): number {
  if (sizeOf(x) === 0) throw new MlxError("first_int", "the array is empty", [describe(x)]);
  const address = dataAddress(x);
  return dtypeOf(x) === "uint32" ? read.u32(address, 0) : read.i32(address, 0);
}

/** Copies the elements out, in row order, converted to the wanted dtype. */
function copyOut(x: MlxArray, dtype: Dtype): ArrayBuffer {
  return scope(() => {
    let y = x;
    if (dtypeOf(y) !== dtype) {
      if (native.mlx_astype(slot(), y, dtypeCode(dtype), stream) !== 0) throw failure("astype", y);
      y = commit();
    }
    if (native.mlx_array_eval(y) !== 0) throw failure("eval", y);
    // What lies in order already is read where it is, without two changes of thread.
    if (native.dspark_row_contiguous(y) === 0) {
      if (native.mlx_contiguous(slot(), y, false, stream) !== 0) throw failure("contiguous", y);
      y = commit();
    }
    const bytes = bytesOf(y);
    return bytes === 0 ? new ArrayBuffer(0) : toArrayBuffer(dataAddress(y), 0, bytes).slice(0);
  });
}

/** Elements as float32, in row order. */
export function toFloat32(x: MlxArray): Float32Array {
  return new Float32Array(copyOut(x, "float32"));
}

/** Elements as int32, in row order. */
export function toInt32(x: MlxArray): Int32Array {
  return new Int32Array(copyOut(x, "int32"));
}

/** Elements as uint32, in row order. */
export function toUint32(x: MlxArray): Uint32Array {
  return new Uint32Array(copyOut(x, "uint32"));
}
