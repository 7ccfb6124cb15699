/**
 * The operations of mlx-c that the project uses, over handles. Each builds a lazy node on this thread's stream and puts
 * the result on the open scope; shapes and broadcasting are MLX's own. A failed call throws MlxError with the shapes.
 */
import { adopt, commit, type Dtype, dtypeCode, failure, type MlxArray, NONE, slot } from "./array.ts";
import { cString } from "./c-string.ts";
import { device, native, stream } from "./native.ts";
import { pinnedInts } from "./pinned.ts";

// Axis lists are written into memory with a fixed address: an op allocates nothing.
const { cells: cellsA, address: addressA } = pinnedInts(16);
const { cells: cellsB, address: addressB } = pinnedInts(16);
const { cells: ones, address: addressOnes } = pinnedInts(16);
ones.fill(1);

type Unary = "mlx_exp" | "mlx_log" | "mlx_negative" | "mlx_sigmoid" | "mlx_tanh";
type Binary =
  | "mlx_add"
  | "mlx_subtract"
  | "mlx_multiply"
  | "mlx_divide"
  | "mlx_maximum"
  | "mlx_matmul"
  | "mlx_greater"
  | "mlx_greater_equal"
  | "mlx_less"
  | "mlx_less_equal"
  | "mlx_logical_and";

function unary(op: Unary): (a: MlxArray) => MlxArray {
  return (a) => {
    if (native[op](slot(), a, stream) !== 0) throw failure(op.slice("mlx_".length), a);
    return commit();
  };
}

function binary(op: Binary): (a: MlxArray, b: MlxArray) => MlxArray {
  return (a, b) => {
    if (native[op](slot(), a, b, stream) !== 0) throw failure(op.slice("mlx_".length), a, b);
    return commit();
  };
}

export const exp = unary("mlx_exp");
export const log = unary("mlx_log");
export const negative = unary("mlx_negative");
export const sigmoid = unary("mlx_sigmoid");
export const tanh = unary("mlx_tanh");

export const subtract = binary("mlx_subtract");
export const multiply = binary("mlx_multiply");
export const divide = binary("mlx_divide");
export const maximum = binary("mlx_maximum");
export const matmul = binary("mlx_matmul");
export const greater = binary("mlx_greater");
export const greaterEqual = binary("mlx_greater_equal");
export const less = binary("mlx_less");
export const lessEqual = binary("mlx_less_equal");
export const logicalAnd = binary("mlx_logical_and");

export function add(a: MlxArray, b: MlxArray): MlxArray {
  if (native.mlx_add(slot(), a, b, stream) !== 0) throw failure("add", a, b);
  return commit();
}

/** c + a·b with one rounding. */
export function addmm(c: MlxArray, a: MlxArray, b: MlxArray): MlxArray {
  if (native.mlx_addmm(slot(), c, a, b, 1, 1, stream) !== 0) throw failure("addmm", c, a, b);
  return commit();
}

export function where(condition: MlxArray, x: MlxArray, y: MlxArray): MlxArray {
  if (native.mlx_where(slot(), condition, x, y, stream) !== 0) throw failure("where", condition, x, y);
  return commit();
}

export function astype(a: MlxArray, dtype: Dtype): MlxArray {
  if (native.mlx_astype(slot(), a, dtypeCode(dtype), stream) !== 0) throw failure("astype", a);
  return commit();
}

/** The same bytes as another dtype. */
export function view(a: MlxArray, dtype: Dtype): MlxArray {
  if (native.mlx_view(slot(), a, dtypeCode(dtype), stream) !== 0) throw failure("view", a);
  return commit();
}

export function contiguous(a: MlxArray): MlxArray {
  if (native.mlx_contiguous(slot(), a, false, stream) !== 0) throw failure("contiguous", a);
  return commit();
}

export function reshape(a: MlxArray, shape: readonly number[]): MlxArray {
  for (let i = 0; i < shape.length; i++) cellsA[i] = shape[i] as number;
  if (native.mlx_reshape(slot(), a, addressA, shape.length, stream) !== 0) throw failure("reshape", a);
  return commit();
}

export function broadcastTo(a: MlxArray, shape: readonly number[]): MlxArray {
  for (let i = 0; i < shape.length; i++) cellsA[i] = shape[i] as number;
  if (native.mlx_broadcast_to(slot(), a, addressA, shape.length, stream) !== 0) throw failure("broadcast_to", a);
  return commit();
}

export function transpose(a: MlxArray, axes: readonly number[]): MlxArray {
  for (let i = 0; i < axes.length; i++) cellsA[i] = axes[i] as number;
  if (native.mlx_transpose_axes(slot(), a, addressA, axes.length, stream) !== 0) throw failure("transpose", a);
  return commit();
}

export function swapaxes(a: MlxArray, first: number, second: number): MlxArray {
  if (native.mlx_swapaxes(slot(), a, first, second, stream) !== 0) throw failure("swapaxes", a);
  return commit();
}

export function expandDims(a: MlxArray, axis: number): MlxArray {
  if (native.mlx_expand_dims(slot(), a, axis, stream) !== 0) throw failure("expand_dims", a);
  return commit();
}

/** a[start:stop] on every axis, step 1; the lists have one entry per axis. */
export function slice(a: MlxArray, start: readonly number[], stop: readonly number[]): MlxArray {
  const n = start.length;
  for (let i = 0; i < n; i++) {
    cellsA[i] = start[i] as number;
    cellsB[i] = stop[i] as number;
  }
  if (native.mlx_slice(slot(), a, addressA, n, addressB, n, addressOnes, n, stream) !== 0) throw failure("slice", a);
  return commit();
}

/** `a` with a[start:stop] replaced by `update`; in place when nothing else refers to `a` at evaluation. */
export function sliceUpdate(
  a: MlxArray,
  update: MlxArray,
  start: readonly number[],
  stop: readonly number[],
): MlxArray {
  const n = start.length;
  for (let i = 0; i < n; i++) {
    cellsA[i] = start[i] as number;
    cellsB[i] = stop[i] as number;
  }
  if (native.mlx_slice_update(slot(), a, update, addressA, n, addressB, n, addressOnes, n, stream) !== 0) {
    throw failure("slice_update", a, update);
  }
  return commit();
}

export function zeros(shape: readonly number[], dtype: Dtype): MlxArray {
  for (let i = 0; i < shape.length; i++) cellsA[i] = shape[i] as number;
  if (native.mlx_zeros(slot(), addressA, shape.length, dtypeCode(dtype), stream) !== 0) throw failure("zeros");
  return commit();
}

/** `value` (a scalar array) repeated to `shape`. */
export function full(shape: readonly number[], value: MlxArray, dtype: Dtype): MlxArray {
  for (let i = 0; i < shape.length; i++) cellsA[i] = shape[i] as number;
  if (native.mlx_full(slot(), addressA, shape.length, value, dtypeCode(dtype), stream) !== 0) {
    throw failure("full", value);
  }
  return commit();
}

export function arange(start: number, stop: number, dtype: Dtype): MlxArray {
  if (native.mlx_arange(slot(), start, stop, 1, dtypeCode(dtype), stream) !== 0) throw failure("arange");
  return commit();
}

/** Rows of `a` along `axis` at the integer `indices`. */
export function take(a: MlxArray, indices: MlxArray, axis: number): MlxArray {
  if (native.mlx_take_axis(slot(), a, indices, axis, stream) !== 0) throw failure("take", a, indices);
  return commit();
}

export function takeAlongAxis(a: MlxArray, indices: MlxArray, axis: number): MlxArray {
  if (native.mlx_take_along_axis(slot(), a, indices, axis, stream) !== 0) throw failure("take_along_axis", a, indices);
  return commit();
}

export function putAlongAxis(a: MlxArray, indices: MlxArray, values: MlxArray, axis: number): MlxArray {
  if (native.mlx_put_along_axis(slot(), a, indices, values, axis, stream) !== 0) {
    throw failure("put_along_axis", a, indices, values);
  }
  return commit();
}

/** `a` with `values` added at `indices` along `axis`; repeated indices add up. */
export function scatterAddAxis(a: MlxArray, indices: MlxArray, values: MlxArray, axis: number): MlxArray {
  if (native.mlx_scatter_add_axis(slot(), a, indices, values, axis, stream) !== 0) {
    throw failure("scatter_add_axis", a, indices, values);
  }
  return commit();
}

/** Index of the largest element along `axis`, the first one on ties; uint32. */
export function argmax(a: MlxArray, axis: number, keepDims = false): MlxArray {
  const status =
    device === "cpu" && axis === -1 && !keepDims
      ? native.dspark_cpu_argmax(slot(), a, stream)
      : native.mlx_argmax_axis(slot(), a, axis, keepDims, stream);
  if (status !== 0) throw failure("argmax", a);
  return commit();
}

export function max(a: MlxArray, axis: number, keepDims = false): MlxArray {
  if (native.mlx_max_axis(slot(), a, axis, keepDims, stream) !== 0) throw failure("max", a);
  return commit();
}

export function sum(a: MlxArray, axis: number, keepDims = false): MlxArray {
  if (native.mlx_sum_axis(slot(), a, axis, keepDims, stream) !== 0) throw failure("sum", a);
  return commit();
}

export function logsumexp(a: MlxArray, axis: number, keepDims = false): MlxArray {
  if (native.mlx_logsumexp_axis(slot(), a, axis, keepDims, stream) !== 0) throw failure("logsumexp", a);
  return commit();
}

/** Softmax along `axis`; `precise` computes in float32 whatever the dtype. */
export function softmax(a: MlxArray, axis: number, precise = true): MlxArray {
  if (native.mlx_softmax_axis(slot(), a, axis, precise, stream) !== 0) throw failure("softmax", a);
  return commit();
}

export function sort(a: MlxArray, axis: number): MlxArray {
  if (native.mlx_sort_axis(slot(), a, axis, stream) !== 0) throw failure("sort", a);
  return commit();
}

export function argsort(a: MlxArray, axis: number): MlxArray {
  if (native.mlx_argsort_axis(slot(), a, axis, stream) !== 0) throw failure("argsort", a);
  return commit();
}

/** Indices that put the `kth` smallest element in place, smaller ones before it. */
export function argpartition(a: MlxArray, kth: number, axis: number): MlxArray {
  if (native.mlx_argpartition_axis(slot(), a, kth, axis, stream) !== 0) throw failure("argpartition", a);
  return commit();
}

/** The `k` largest values along `axis`, in ascending order of no promise. */
export function topk(a: MlxArray, k: number, axis: number): MlxArray {
  if (native.mlx_topk_axis(slot(), a, k, axis, stream) !== 0) throw failure("topk", a);
  return commit();
}

/** Running sum along `axis`, each element included. */
export function cumsum(a: MlxArray, axis: number): MlxArray {
  if (native.dspark_cumsum(slot(), a, axis, false, true, stream) !== 0) throw failure("cumsum", a);
  return commit();
}

/** x / sqrt(mean(x²) + eps) · weight over the last axis, in float32 inside; `weight` may be NONE. */
export function rmsNorm(x: MlxArray, weight: MlxArray, eps: number): MlxArray {
  if (native.mlx_fast_rms_norm(slot(), x, weight, eps, stream) !== 0) throw failure("rms_norm", x, weight);
  return commit();
}

/**
 * Rotary embedding of x [..., T, D]: rows take positions offset, offset+1, …; `freqs` (divisors of the position) or `base`.
 */
export function rope(
  x: MlxArray,
  dims: number,
  traditional: boolean,
  base: number | null,
  scale: number,
  offset: number,
  freqs: MlxArray = NONE,
): MlxArray {
  if (native.dspark_rope(slot(), x, dims, traditional, base ?? 0, scale, offset, freqs, stream) !== 0) {
    throw failure("rope", x, freqs);
  }
  return commit();
}

/** Rotary embedding with an int32 array of start positions, one per entry of the first axis of x [B, H, T, D]. */
export function ropeAt(
  x: MlxArray,
  dims: number,
  traditional: boolean,
  base: number | null,
  scale: number,
  offsets: MlxArray,
  freqs: MlxArray = NONE,
): MlxArray {
  if (native.dspark_rope_dynamic(slot(), x, dims, traditional, base ?? 0, scale, offsets, freqs, stream) !== 0) {
    throw failure("rope_dynamic", x, offsets, freqs);
  }
  return commit();
}

/**
 * softmax(scale · q·kᵀ + mask)·v with float32 softmax. q [B,Hq,T,D], k and v [B,Hkv,S,D]; grouped-query attention by
 * the head counts. `causal` aligns the last query with the last key; a bool `mask` marks what is seen. `sinks` [Hq] are
 * logits that take part in the softmax and give no value.
 */
export function attention(
  q: MlxArray,
  k: MlxArray,
  v: MlxArray,
  scale: number,
  mask: MlxArray | "causal" | "none",
  sinks: MlxArray = NONE,
): MlxArray {
  const mode = typeof mask === "number" ? "array" : mask === "causal" ? "causal" : "";
  const maskArray = typeof mask === "number" ? mask : NONE;
  if (
    native.mlx_fast_scaled_dot_product_attention(
      slot(),
      q,
      k,
      v,
      scale,
      cString(mode),
      maskArray,
      sinks,
      false,
      stream,
    ) !== 0
  ) {
    throw failure("scaled_dot_product_attention", q, k, v, maskArray);
  }
  return commit();
}

export type QuantMode = "affine" | "mxfp4" | "nvfp4" | "mxfp8";

/** x · Wᵀ (or x · W) with a packed W; result in the promoted dtype of x and the scales. */
export function quantizedMatmul(
  x: MlxArray,
  w: MlxArray,
  scales: MlxArray,
  biases: MlxArray,
  transposed: boolean,
  groupSize: number,
  bits: number,
  mode: QuantMode,
): MlxArray {
  const status = native.dspark_quantized_matmul(
    slot(),
    x,
    w,
    scales,
    biases,
    transposed,
    groupSize,
    bits,
    cString(mode),
    stream,
  );
  if (status !== 0) throw failure("quantized_matmul", x, w, scales, biases);
  return commit();
}

export function dequantize(
  w: MlxArray,
  scales: MlxArray,
  biases: MlxArray,
  groupSize: number,
  bits: number,
  mode: QuantMode,
): MlxArray {
  if (native.dspark_dequantize(slot(), w, scales, biases, groupSize, bits, cString(mode), stream) !== 0) {
    throw failure("dequantize", w, scales, biases);
  }
  return commit();
}

export interface QuantizedParts {
  readonly weight: MlxArray;
  readonly scales: MlxArray;
  /** NONE for the floating-point modes. */
  readonly biases: MlxArray;
}

const partCells = [new Uint32Array(2), new Uint32Array(2), new Uint32Array(2)] as const;

export function quantize(w: MlxArray, groupSize: number, bits: number, mode: QuantMode): QuantizedParts {
  for (const cell of partCells) cell.fill(0);
  const [a, b, c] = partCells;
  if (native.dspark_quantize(a, b, c, w, groupSize, bits, cString(mode), stream) !== 0) throw failure("quantize", w);
  const [weight, scales, biases] = partCells.map((cell) => adoptCell(cell));
  return { weight: weight ?? NONE, scales: scales ?? NONE, biases: biases ?? NONE };
}

function adoptCell(cell: Uint32Array): MlxArray {
  const handle = (cell[1] as number) * 4294967296 + (cell[0] as number);
  return handle === 0 ? NONE : adopt(handle, "quantize");
}
