/**
 * Keys and values of one layer and row that only grow: one buffer [1, Hkv, capacity, D] each, filled from the left.
 * Invariant: rows [0, length) are the fed tokens in order; what stands behind them is garbage that is never read.
 * An append writes in place when nothing else refers to the buffer at evaluation; trimming lowers the length.
 */
import { bytesOf, concatenate, dim, dtypeOf, free, keep, type MlxArray } from "../mlx/array.ts";
import { attention, slice, sliceUpdate, zeros } from "../mlx/ops.ts";
import type { AttendingState } from "../nn/layer-state.ts";
import { nextCapacity } from "./capacity.ts";

export class GrowingKv implements AttendingState {
  length = 0;
  private keys: MlxArray | null = null;
  private values: MlxArray | null = null;
  private capacity = 0;

  /** @param capacityMax most tokens that will ever be held */
  constructor(private readonly capacityMax: number) {}

  attend(q: MlxArray, k: MlxArray, v: MlxArray, scale: number): MlxArray {
    const count = dim(k, 2);
    const keys = this.append(this.keys, k, count);
    const values = this.append(this.values, v, count);
    this.keys = keys.buffer;
    this.values = values.buffer;
    this.capacity = keys.capacity;
    this.length += count;
    return attention(q, keys.held, values.held, scale, count > 1 ? "causal" : "none");
  }

  private append(
    old: MlxArray | null,
    added: MlxArray,
    count: number,
  ): { buffer: MlxArray; held: MlxArray; capacity: number } {
    const heads = dim(added, 1);
    const width = dim(added, 3);
    const end = this.length + count;
    let buffer = old;
    let capacity = this.capacity;
    if (end > capacity) {
      capacity = nextCapacity(capacity, end, this.capacityMax);
      const room = zeros([1, heads, capacity - this.length, width], dtypeOf(added));
      buffer = old === null ? room : concatenate([slice(old, [0, 0, 0, 0], [1, heads, this.length, width]), room], 2);
    }
    if (buffer === null) throw new RangeError("an empty append");
    const written = sliceUpdate(buffer, added, [0, 0, this.length, 0], [1, heads, end, width]);
    const held = slice(written, [0, 0, 0, 0], [1, heads, end, width]);
    const kept = keep(written);
    if (old !== null) free(old);
    return { buffer: kept, held, capacity };
  }

  trim(count: number): void {
    if (count < 0 || count > this.length) throw new RangeError(`cannot trim ${count} of ${this.length} tokens`);
    this.length -= count;
  }

  arrays(): readonly MlxArray[] {
    return this.keys === null || this.values === null ? [] : [this.keys, this.values];
  }

  get bytes(): number {
    return this.arrays().reduce((sum, x) => sum + bytesOf(x), 0);
  }

  dispose(): void {
    for (const x of this.arrays()) free(x);
    this.keys = null;
    this.values = null;
    this.capacity = 0;
    this.length = 0;
  }
}
