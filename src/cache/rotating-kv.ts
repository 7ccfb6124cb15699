/**
 * Keys and values of a sliding-window layer, in time order. Invariant: rows [end − held, end) of the buffer are the
 * newest fed tokens in order, and at least the last min(length, window − 1) of them are there after any append and any
 * trim of at most SLACK tokens. Nothing rotates, so that a trim equals never having seen the trimmed tokens
 * (a ring drops good rows then; models-dense.md §5.4).
 */
import { boolArray, bytesOf, concatenate, dim, dtypeOf, free, keep, type MlxArray } from "../mlx/array.ts";
import { attention, slice, sliceUpdate, zeros } from "../mlx/ops.ts";
import type { AttendingState } from "../nn/layer-state.ts";

/** Tokens beyond the window that a compaction keeps, so that they can be trimmed again. */
const SLACK = 64;
/** Room that a compaction makes, in tokens: single steps copy the window once in this many. */
const ROOM = 256;

export class RotatingKv implements AttendingState {
  length = 0;
  private keys: MlxArray | null = null;
  private values: MlxArray | null = null;
  private capacity = 0;
  /** Buffer rows in use. */
  private end = 0;

  /** @param window tokens that a query sees, itself included */
  constructor(private readonly window: number) {}

  attend(q: MlxArray, k: MlxArray, v: MlxArray, scale: number): MlxArray {
    const count = dim(k, 2);
    const retained = Math.min(this.end, this.length, this.window - 1 + SLACK);
    const compact = this.end + count > this.capacity;
    const start = compact ? retained : this.end;
    const capacity = compact ? retained + count + ROOM : this.capacity;
    // Each buffer is owned as soon as it is made: an error in between must leave nothing freed twice.
    const keys = this.append(this.keys, k, count, compact, retained, capacity);
    this.keys = keys;
    const values = this.append(this.values, v, count, compact, retained, capacity);
    this.values = values;
    this.capacity = capacity;
    this.end = start + count;
    this.length += count;
    const context = Math.min(start, this.window - 1);
    const from = start - context;
    const seen = (x: MlxArray) => slice(x, [0, 0, from, 0], [1, dim(x, 1), this.end, dim(x, 3)]);
    return attention(q, seen(keys), seen(values), scale, this.mask(context, count));
  }

  private append(
    old: MlxArray | null,
    added: MlxArray,
    count: number,
    compact: boolean,
    retained: number,
    capacity: number,
  ): MlxArray {
    const heads = dim(added, 1);
    const width = dim(added, 3);
    let buffer = old;
    let at = this.end;
    if (compact || old === null) {
      const room = zeros([1, heads, capacity - retained, width], dtypeOf(added));
      const tail = (x: MlxArray) => slice(x, [0, 0, this.end - retained, 0], [1, heads, this.end, width]);
      buffer = old === null || retained === 0 ? room : concatenate([tail(old), room], 2);
      at = retained;
    }
    if (buffer === null) throw new RangeError("an empty append");
    const written = keep(sliceUpdate(buffer, added, [0, 0, at, 0], [1, heads, at + count, width]));
    if (old !== null) free(old);
    return written;
  }

  /** Query i sees key r (both from the first row shown) iff r ≤ context + i and context + i < r + window. */
  private mask(context: number, count: number): MlxArray | "causal" | "none" {
    if (count === 1) return "none";
    const total = context + count;
    if (total <= this.window) return "causal";
    const seen = new Uint8Array(count * total);
    for (let i = 0; i < count; i++) {
      const position = context + i;
      seen.fill(1, i * total + Math.max(0, position - this.window + 1), i * total + position + 1);
    }
    return boolArray(seen, [count, total]);
  }

  trim(count: number): void {
    if (count < 0 || count > this.length) throw new RangeError(`cannot trim ${count} of ${this.length} tokens`);
    const left = this.end - count;
    if (left < Math.min(this.length - count, this.window - 1)) {
      throw new RangeError(`cannot trim ${count} tokens of a window of ${this.window}: the rows before them are gone`);
    }
    this.end = left;
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
    this.end = 0;
    this.length = 0;
  }
}
