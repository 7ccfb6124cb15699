/**
 * Rotated keys and values of one drafter layer and row that lie with the CPU primitives (shim/cpu/kv_store.h). Invariant:
 * the store's tokens [gone, rows) are the positions base + gone … base + rows − 1; what stands behind them is garbage that
 * is never read. A layer that can see only its last rows forgets older ones, by chunks.
 */
import { free, keep, type MlxArray, NONE } from "../mlx/array.ts";
import { type AttendedRow, freeKvStore, type KvStore, kvStoreBytes, kvStoreFirst, newKvStore } from "../mlx/cpu.ts";
import { readKvStore } from "../mlx/cpu-draft.ts";
import { slice } from "../mlx/ops.ts";
import type { Context, KeysValues } from "./context.ts";

export class PackedContext implements Context {
  private store: KvStore;
  /** The append that the next step waits for. */
  private after = NONE;
  private rows = 0;
  private disposed = false;

  /**
   * @param visible most rows that a later block can see; null: all
   * @param base position of the first row to come
   */
  constructor(
    private readonly kvHeads: number,
    private readonly headDim: number,
    private readonly visible: number | null,
    private base: number,
  ) {
    this.store = newKvStore(kvHeads, headDim, "float32", 0);
  }

  get end(): number {
    return this.base + this.rows;
  }

  get held(): number {
    return this.rows - this.gone;
  }

  private get gone(): number {
    return Math.min(kvStoreFirst(this.store), this.rows);
  }

  /** `write` appends `count` rows for positions `position` …; rows between `end` and it were never given and are skipped. */
  append(count: number, position: number, write: (row: AttendedRow) => MlxArray): void {
    if (position < this.end) throw new RangeError(`position ${position} is already in the context (of ${this.end})`);
    if (position > this.end) this.restart(position);
    const { store, after, rows: start } = this;
    const token = keep(write({ store, after, start, count, window: this.visible ?? 0 }));
    if (after !== NONE) free(after);
    this.after = token;
    this.rows += count;
  }

  /** What a block of `count` slots behind the context attends to: its last `shown` rows. */
  shown(shown: number, count: number, window: number | null): AttendedRow {
    const { store, after, rows: start } = this;
    return { store, after, start, count, window: window ?? 0, first: start - shown };
  }

  all(): KeysValues | null {
    const { held, rows, kvHeads, headDim } = this;
    if (held === 0) return null;
    const both = readKvStore(this.store, this.after, rows - held, rows);
    const part = (i: number) => slice(both, [i, 0, 0, 0], [i + 1, kvHeads, held, headDim]);
    return { keys: part(0), values: part(1) };
  }

  trim(length: number): void {
    if (length > this.end) throw new RangeError(`cannot trim a context of ${this.end} to ${length}`);
    if (length - this.base > this.gone) this.rows = length - this.base;
    else this.restart(length);
  }

  /** An empty context; steps under way keep what they read. */
  private restart(position: number): void {
    if (this.rows > 0) {
      const fresh = newKvStore(this.kvHeads, this.headDim, "float32", 0);
      freeKvStore(this.store);
      this.store = fresh;
    }
    this.rows = 0;
    this.base = position;
  }

  arrays(): readonly MlxArray[] {
    return this.after === NONE ? [] : [this.after];
  }

  get bytes(): number {
    return this.disposed ? 0 : kvStoreBytes(this.store);
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    if (this.after !== NONE) free(this.after);
    this.after = NONE;
    freeKvStore(this.store);
    this.rows = 0;
  }
}
