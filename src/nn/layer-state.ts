/**
 * What a layer remembers of one row (a sequence), and the batch of rows that one forward computes. `src/cache/`
 * implements the states; models only append to them and attend. A state holds exactly the tokens fed and not trimmed.
 */
import { free, int32Array, type MlxArray } from "../mlx/array.ts";
import type { KvStore } from "../mlx/cpu.ts";

export interface LayerState {
  /** Tokens held. */
  readonly length: number;
  /** Forgets the newest `count` tokens: the state is then as if they had never been appended. */
  trim(count: number): void;
  /** The arrays to evaluate with a step, so that no graph grows behind them. */
  arrays(): readonly MlxArray[];
  /** Bytes allocated. */
  readonly bytes: number;
  dispose(): void;
}

/** A state that attends by itself, from keys and values as arrays: what the stock backend uses. */
export interface AttendingState extends LayerState {
  /**
   * Appends keys and values [1, Hkv, T, D] at the end and attends with the T queries [1, Hq, T, D], each seeing what is
   * held up to its own position (within the layer's window). Returns [1, Hq, T, D].
   */
  attend(q: MlxArray, k: MlxArray, v: MlxArray, scale: number): MlxArray;
}

/** A state whose keys and values lie with the CPU primitives, which append to them: what the fused CPU backend uses. */
export interface PackedState extends LayerState {
  readonly store: KvStore;
  /** Tokens that a query sees, itself included; null: all. */
  readonly window: number | null;
  /** The array that the newest step made and the next one waits for; NONE before the first. */
  readonly after: MlxArray;
  /** A step has appended `count` tokens; `token` stands for it. */
  appended(count: number, token: StepToken): void;
}

export function isPacked(state: LayerState): state is PackedState {
  return "store" in state;
}

/** The array that stands for a step's writes, shared by the rows of the step: freed when the last one lets go. */
export class StepToken {
  private holders = 0;

  /** @param array kept by the caller, from now on owned here */
  constructor(readonly array: MlxArray) {}

  hold(): void {
    this.holders++;
  }

  release(): void {
    this.holders--;
    if (this.holders === 0) free(this.array);
  }
}

export function canAttend(state: LayerState): state is AttendingState {
  return "attend" in state;
}

/** What a layer needs of its state. */
export interface StateSpec {
  readonly kvHeads: number;
  readonly headDim: number;
  /** Tokens that a query sees, itself included; null: all. */
  readonly window: number | null;
}

/** Which kind of state a compute backend works on: AttendingState or PackedState. */
export type StateLayout = "arrays" | "packed";

/** Makes the states of a row; implemented in `src/cache/`. */
export interface StateFactory {
  /** `capacityMax`: most tokens that the row can ever hold. */
  newState(spec: StateSpec, capacityMax: number): LayerState;
}

/** One row's part of a step: `count` consecutive tokens from position `offset` on. */
export interface StepRow {
  readonly states: readonly LayerState[];
  readonly count: number;
  readonly offset: number;
}

/**
 * The rows of one forward. Their tokens stand behind each other in one flat matrix of `total` rows; only attention looks
 * at the borders (ragged batching: no padding).
 */
export class StepBatch {
  readonly total: number;
  /** The device has nothing else to do: the forward is to be started before it is built to its end. */
  readonly eager: boolean;
  private cachedPositions: MlxArray | null = null;

  constructor(
    readonly rows: readonly StepRow[],
    { eager = false }: { readonly eager?: boolean } = {},
  ) {
    this.eager = eager;
    this.total = rows.reduce((sum, row) => sum + row.count, 0);
  }

  /** Position of every token, int32 [total]; belongs to the scope of the forward. */
  positions(): MlxArray {
    if (this.cachedPositions === null) {
      const values = new Int32Array(this.total);
      let at = 0;
      for (const row of this.rows) for (let i = 0; i < row.count; i++) values[at++] = row.offset + i;
      this.cachedPositions = int32Array(values);
    }
    return this.cachedPositions;
  }
}
