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
    const end = this.length + count;
    const capacity = end > this.capacity ? nextCapacity(this.capacity, end, this.capacityMax) : this.capacity;
    // Each buffer is owned as soon as it is made: an error in between must leave nothing freed twice.
    this.keys = this.append(this.keys, k, capacity);
    this.values = this.append(this.values, v, capacity);
    this.capacity = capacity;
    this.length = end;
    const held = (x: MlxArray) => slice(x, [0, 0, 0, 0], [1, dim(x, 1), end, dim(x, 3)]);
    return attention(q, held(this.keys), held(this.values), scale, count > 1 ? "causal" : "none");
  }

  /** The buffer with `added` behind what is held; takes the place of `old`, which is freed. */
  private append(old: MlxArray | null, added: MlxArray, capacity: number): MlxArray {
    const [heads, count, width] = [dim(added, 1), dim(added, 2), dim(added, 3)];
    let buffer = old;
    if (buffer === null || capacity > this.capacity) {
      const room = zeros([1, heads, capacity - this.length, width], dtypeOf(added));
      buffer = old === null ? room : concatenate([slice(old, [0, 0, 0, 0], [1, heads, this.length, width]), room], 2);
    }
    const end = this.length + count;
    const written = keep(sliceUpdate(buffer, added, [0, 0, this.length, 0], [1, heads, end, width]));
    if (old !== null) free(old);
    return written;
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
    for (const x of [this.keys, this.values]) if (x !== null) free(x);
    this.keys = null;
    this.values = null;
    this.capacity = 0;
    this.length = 0;
  }
}
