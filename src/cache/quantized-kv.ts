/**
 * Growing keys and values kept as MLX's affine triples (`--kv-bits`): each append is quantized from the first token on.
 * Invariant as in growing-kv.ts. Attention is explicit, since the fused kernel takes no packed keys:
 * softmax(scale·q·Kᵀ + mask)·V with packed products. The greedy text is that of the KV-quantized target.
 */
import {
  boolArray,
  bytesOf,
  concatenate,
  dim,
  dtypeOf,
  free,
  keep,
  type MlxArray,
  NONE,
  scalar,
} from "../mlx/array.ts";
import {
  expandDims,
  multiply,
  type QuantizedParts,
  quantize,
  quantizedMatmul,
  reshape,
  slice,
  sliceUpdate,
  softmax,
  where,
  zeros,
} from "../mlx/ops.ts";
import type { AttendingState } from "../nn/layer-state.ts";
import { nextCapacity } from "./capacity.ts";

/** Most negative finite value of the dtypes that scores can have. */
const LOWEST: Readonly<Record<string, number>> = {
  float32: -3.4028234663852886e38,
  float16: -65504,
  bfloat16: -3.3895313892515355e38,
};

export class QuantizedKv implements AttendingState {
  length = 0;
  private keys: QuantizedParts | null = null;
  private values: QuantizedParts | null = null;
  private capacity = 0;

  /** @param groupSize divides the head dimension */
  constructor(
    private readonly capacityMax: number,
    private readonly bits: 4 | 8,
    private readonly groupSize: number,
  ) {}

  attend(q: MlxArray, k: MlxArray, v: MlxArray, scale: number): MlxArray {
    const count = dim(k, 2);
    const end = this.length + count;
    const capacity = end > this.capacity ? nextCapacity(this.capacity, end, this.capacityMax) : this.capacity;
    // Each set of buffers is owned as soon as it is made: an error in between must leave nothing freed twice.
    this.keys = this.append(this.keys, k, capacity, end);
    this.values = this.append(this.values, v, capacity, end);
    this.capacity = capacity;
    this.length = end;
    return this.attention(q, held(this.keys, end), held(this.values, end), scale);
  }

  /** The buffers with `added` behind what is held; they take the place of `old`, which is freed. */
  private append(old: QuantizedParts | null, added: MlxArray, capacity: number, end: number): QuantizedParts {
    const fresh = quantize(added, this.groupSize, this.bits, "affine");
    const part = (name: "weight" | "scales" | "biases") => {
      const update = fresh[name];
      const [heads, width] = [dim(update, 1), dim(update, 3)];
      const room = (rows: number) => zeros([1, heads, rows, width], dtypeOf(update));
      let buffer = old === null ? room(capacity) : old[name];
      if (old !== null && capacity > this.capacity) {
        const before = slice(buffer, [0, 0, 0, 0], [1, heads, this.length, width]);
        buffer = concatenate([before, room(capacity - this.length)], 2);
      }
      return sliceUpdate(buffer, update, [0, 0, this.length, 0], [1, heads, end, width]);
    };
    const written = { weight: part("weight"), scales: part("scales"), biases: part("biases") };
    for (const x of Object.values(written)) keep(x);
    if (old !== null) freeParts(old);
    return written;
  }

  private attention(q: MlxArray, keys: QuantizedParts, values: QuantizedParts, scale: number): MlxArray {
    const [heads, count, width] = [dim(q, 1), dim(q, 2), dim(q, 3)];
    const kvHeads = dim(keys.weight, 1);
    const total = this.length;
    const shared = heads !== kvHeads;
    const scaled = multiply(q, scalar(scale, dtypeOf(q)));
    const queries = shared ? reshape(scaled, [1, kvHeads, heads / kvHeads, count, width]) : scaled;
    const product = (x: MlxArray, parts: QuantizedParts, transposed: boolean) => {
      const wide = (y: MlxArray) => (shared ? expandDims(y, -3) : y);
      return quantizedMatmul(
        x,
        wide(parts.weight),
        wide(parts.scales),
        parts.biases === NONE ? NONE : wide(parts.biases),
        transposed,
        this.groupSize,
        this.bits,
        "affine",
      );
    };
    let scores = product(queries, keys, true);
    if (count > 1) {
      const lowest = scalar(LOWEST[dtypeOf(scores)] ?? -65504, dtypeOf(scores));
      scores = where(causalMask(count, total), scores, lowest);
    }
    const out = product(softmax(scores, -1), values, false);
    return shared ? reshape(out, [1, heads, count, width]) : out;
  }

  trim(count: number): void {
    if (count < 0 || count > this.length) throw new RangeError(`cannot trim ${count} of ${this.length} tokens`);
    this.length -= count;
  }

  arrays(): readonly MlxArray[] {
    return [this.keys, this.values].flatMap((parts) =>
      parts === null ? [] : [parts.weight, parts.scales, parts.biases],
    );
  }

  get bytes(): number {
    return this.arrays().reduce((sum, x) => sum + bytesOf(x), 0);
  }

  dispose(): void {
    for (const parts of [this.keys, this.values]) if (parts !== null) freeParts(parts);
    this.keys = null;
    this.values = null;
    this.capacity = 0;
    this.length = 0;
  }
}

/** Rows [0, end) of each part. */
function held(parts: QuantizedParts, end: number): QuantizedParts {
  const rows = (x: MlxArray) => slice(x, [0, 0, 0, 0], [1, dim(x, 1), end, dim(x, 3)]);
  return { weight: rows(parts.weight), scales: rows(parts.scales), biases: rows(parts.biases) };
}

function freeParts(parts: QuantizedParts): void {
  free(parts.weight);
  free(parts.scales);
  free(parts.biases);
}

/** Bool [count, total]: the last query is aligned with the last key. */
function causalMask(count: number, total: number): MlxArray {
  const seen = new Uint8Array(count * total);
  for (let i = 0; i < count; i++) seen.fill(1, i * total, i * total + total - count + i + 1);
  return boolArray(seen, [count, total]);
}
