/**
 * Rotated keys and values of one drafter layer and row, in position order. Invariant: buffer rows [0, rows) are the
 * positions first … first + rows − 1; what stands behind them is scratch, where the block of a round is written for the
 * time of its attention. Rows are appended in place and never copied as a whole but when the buffer grows (by half, in
 * steps of 256). A layer that can see only its last rows forgets older ones then.
 */
import { bytesOf, concatenate, dim, dtypeOf, free, keep, type MlxArray } from "../mlx/array.ts";
import { slice, sliceUpdate, zeros } from "../mlx/ops.ts";

const STEP = 256;
/** Rows beyond the visible ones that stay, so that a few positions can be trimmed. */
const SLACK = 64;

export interface KeysValues {
  readonly keys: MlxArray;
  readonly values: MlxArray;
}

/** One row's keys and values in one layer of a drafter, in position order. */
export interface Context {
  /** Position after the last row. */
  readonly end: number;
  /** Rows held. */
  readonly held: number;
  readonly bytes: number;
  /** Ends the context at `length`; where older rows are gone it is then empty. */
  trim(length: number): void;
  /** All rows held, rotated keys and values [1, Hkv, n, D]; null when there are none. */
  all(): KeysValues | null;
  /** The arrays to evaluate with a round, so that no graph grows behind them. */
  arrays(): readonly MlxArray[];
  dispose(): void;
}

export class ContextLayer implements Context {
  private buffers: KeysValues | null = null;
  private capacity = 0;
  private rows = 0;

  /**
   * @param visible most rows that a later block can see; null: all
   * @param capacityMax most rows that are ever needed, scratch included
   * @param first position of the first row to come
   */
  constructor(
    private readonly visible: number | null,
    private readonly capacityMax: number,
    private first: number,
  ) {}

  get end(): number {
    return this.first + this.rows;
  }

  get held(): number {
    return this.rows;
  }

  /** Appends k, v [1, Hkv, n, D] for positions `position` …; rows between `end` and it were never given and are skipped. */
  append(k: MlxArray, v: MlxArray, position: number): void {
    if (position < this.end) throw new RangeError(`position ${position} is already in the context (of ${this.end})`);
    if (position > this.end) {
      this.first = position;
      this.rows = 0;
    }
    this.write(k, v);
    this.rows += dim(k, 2);
  }

  /** The last `shown` rows and behind them the block's k, v [1, Hkv, T, D], as views. */
  withBlock(k: MlxArray, v: MlxArray, shown: number): KeysValues {
    return this.view(this.write(k, v), this.rows - shown, this.rows + dim(k, 2));
  }

  all(): KeysValues | null {
    return this.buffers === null || this.rows === 0 ? null : this.view(this.buffers, 0, this.rows);
  }

  trim(length: number): void {
    if (length > this.end) throw new RangeError(`cannot trim a context of ${this.end} to ${length}`);
    this.rows = Math.max(0, length - this.first);
    if (this.rows === 0) this.first = length;
  }

  arrays(): readonly MlxArray[] {
    return this.buffers === null ? [] : [this.buffers.keys, this.buffers.values];
  }

  get bytes(): number {
    return this.arrays().reduce((sum, x) => sum + bytesOf(x), 0);
  }

  dispose(): void {
    for (const x of this.arrays()) free(x);
    this.buffers = null;
    this.capacity = 0;
    this.rows = 0;
  }

  private view({ keys, values }: KeysValues, from: number, to: number): KeysValues {
    const part = (x: MlxArray) => slice(x, [0, 0, from, 0], [1, dim(x, 1), to, dim(x, 3)]);
    return { keys: part(keys), values: part(values) };
  }

  /** Writes behind the rows, without counting them. */
  private write(k: MlxArray, v: MlxArray): KeysValues {
    const end = this.rows + dim(k, 2);
    const old = this.buffers === null || end > this.capacity ? this.makeRoom(k, v) : this.buffers;
    const at = this.rows;
    const into = (buffer: MlxArray, x: MlxArray) =>
      sliceUpdate(buffer, x, [0, 0, at, 0], [1, dim(x, 1), at + dim(x, 2), dim(x, 3)]);
    return this.replace({ keys: into(old.keys, k), values: into(old.values, v) });
  }

  /** Moves the rows that stay into larger buffers; shapes and dtypes are those of the rows to be written. */
  private makeRoom(k: MlxArray, v: MlxArray): KeysValues {
    const stay = this.visible === null ? this.rows : Math.min(this.rows, this.visible + SLACK);
    const dropped = this.rows - stay;
    const needed = stay + dim(k, 2);
    const stepped = Math.ceil(Math.max(needed, stay * 1.5) / STEP) * STEP;
    const capacity = Math.max(needed, Math.min(stepped, this.capacityMax));
    const grown = (old: MlxArray | undefined, like: MlxArray) => {
      const [heads, width] = [dim(like, 1), dim(like, 3)];
      const room = zeros([1, heads, capacity - stay, width], dtypeOf(like));
      if (old === undefined || stay === 0) return room;
      return concatenate([slice(old, [0, 0, dropped, 0], [1, heads, this.rows, width]), room], 2);
    };
    const buffers = { keys: grown(this.buffers?.keys, k), values: grown(this.buffers?.values, v) };
    this.first += dropped;
    this.rows = stay;
    this.capacity = capacity;
    return this.replace(buffers);
  }

  /** Takes ownership of both buffers, made without an error by then. */
  private replace(buffers: KeysValues): KeysValues {
    for (const x of this.arrays()) free(x);
    keep(buffers.keys);
    keep(buffers.values);
    this.buffers = buffers;
    return buffers;
  }
}
