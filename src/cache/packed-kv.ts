/**
 * Keys and values that lie with the CPU primitives (shim/cpu/kv_store.h). Invariant: the store's tokens [first, length)
 * are the newest fed ones, `first` being 0 without a window; what stands behind `length` is garbage that is never read.
 * Growing adds a chunk, trimming lowers the length, a fork shares chunks until one side writes to them.
 */
import { evaluate, type MlxArray, NONE } from "../mlx/array.ts";
import {
  forkKvStore,
  freeKvStore,
  type KvFormat,
  type KvStore,
  kvStoreBytes,
  kvStoreFirst,
  newKvStore,
} from "../mlx/cpu.ts";
import type { PackedState, StateSpec, StepToken } from "../nn/layer-state.ts";

export class PackedKv implements PackedState {
  length = 0;
  readonly window: number | null;
  private token: StepToken | null = null;
  private disposed = false;

  private constructor(
    readonly store: KvStore,
    window: number | null,
  ) {
    this.window = window;
  }

  /** @param groupSize features that share a scale, for q8 and q4 */
  static empty(spec: StateSpec, format: KvFormat, groupSize: number): PackedKv {
    return new PackedKv(newKvStore(spec.kvHeads, spec.headDim, format, groupSize), spec.window);
  }

  get after(): MlxArray {
    return this.token?.array ?? NONE;
  }

  appended(count: number, token: StepToken): void {
    token.hold();
    this.token?.release();
    this.token = token;
    this.length += count;
  }

  trim(count: number): void {
    if (count < 0 || count > this.length) throw new RangeError(`cannot trim ${count} of ${this.length} tokens`);
    const left = this.length - count;
    const needed = this.window === null ? 0 : Math.max(0, left - this.window + 1);
    if (needed < kvStoreFirst(this.store)) {
      throw new RangeError(`cannot trim ${count} tokens of a window of ${this.window}: the rows before them are gone`);
    }
    this.length = left;
  }

  /** The same tokens again, sharing memory. Waits for the newest step. */
  fork(): PackedKv {
    evaluate(this.arrays());
    const twin = new PackedKv(forkKvStore(this.store), this.window);
    twin.length = this.length;
    return twin;
  }

  arrays(): readonly MlxArray[] {
    return this.token === null ? [] : [this.token.array];
  }

  get bytes(): number {
    return this.disposed ? 0 : kvStoreBytes(this.store);
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.token?.release();
    this.token = null;
    freeKvStore(this.store);
    this.length = 0;
  }
}
