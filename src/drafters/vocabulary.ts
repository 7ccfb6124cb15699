/**
 * From the drafter's logits to the target's ids: a drafter may know fewer ids than its target (then a table maps them)
 * or a prefix of them. Distributions leave here in the target's width. drafters.md §2, "Draft id".
 */
import { concatenate, dim, free, type MlxArray, scalar } from "../mlx/array.ts";
import { full, less, putAlongAxis, reshape, slice, take, where, zeros } from "../mlx/ops.ts";

export class DraftVocabulary {
  /**
   * @param width columns of the drafter's logits that mean something
   * @param ids uint32 [width], the target id of each draft id; null: the same. Owned.
   * @param targetVocab width of the target's logits, padding included
   */
  constructor(
    readonly width: number,
    private readonly ids: MlxArray | null,
    private readonly targetVocab: number,
  ) {}

  /** Draft ids are the target's. */
  get sameIds(): boolean {
    return this.ids === null;
  }

  /** Logits [n, any] → those of the drafter's own ids [n, width]: a borrowed head may know more. */
  own(logits: MlxArray): MlxArray {
    return dim(logits, 1) === this.width ? logits : slice(logits, [0, 0], [dim(logits, 0), this.width]);
  }

  /** Logits [n, any] → [n, width known to drafter and target]; `vocab`: the target's width without padding. */
  clip(logits: MlxArray, vocab: number): MlxArray {
    const most = this.clipped(dim(logits, 1), vocab);
    return dim(logits, 1) === most ? logits : slice(logits, [0, 0], [dim(logits, 0), most]);
  }

  /** Columns that `clip` leaves of `columns`. */
  clipped(columns: number, vocab: number): number {
    return Math.min(columns, this.width, this.ids === null ? vocab : this.width);
  }

  /** The columns of a row of the target's vocabulary [1, vocab] that belong to clipped logits. */
  restrict(row: MlxArray, vocab: number): MlxArray {
    if (this.ids !== null) return take(row, this.ids, 1);
    return this.width < vocab ? slice(row, [0, 0], [1, this.width]) : row;
  }

  /** Indices into clipped logits, uint32 [n] → target ids. */
  toTarget(indices: MlxArray): MlxArray {
    return this.ids === null ? indices : take(this.ids, indices, 0);
  }

  /** float32 [1, clipped] → [1, vocab], `fill` where the drafter has nothing to say. */
  widen(row: MlxArray, vocab: number, fill: number): MlxArray {
    const known = dim(row, 1);
    if (this.ids === null) {
      if (known === vocab) return row;
      return concatenate([row, full([1, vocab - known], scalar(fill, "float32"), "float32")], 1);
    }
    const nothing = full([1, this.targetVocab], scalar(fill, "float32"), "float32");
    const wide = putAlongAxis(nothing, reshape(this.ids, [1, known]), row, 1);
    return vocab === this.targetVocab ? wide : slice(wide, [0, 0], [1, vocab]);
  }

  dispose(): void {
    if (this.ids !== null) free(this.ids);
  }
}

/**
 * Ids as indices into a table of `rows` rows. A target with more ids than the drafter's tables can commit one beyond
 * them, and a device does not check an index: such an id stands for the first row.
 */
export function withinTable(ids: MlxArray, rows: number, targetVocab: number): MlxArray {
  if (rows >= targetVocab) return ids;
  const limit = scalar(rows, "int32");
  return where(less(ids, limit), ids, zeros([1], "int32"));
}
