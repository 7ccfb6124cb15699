/**
 * One sequence being computed. Invariants between steps (batching.md I1, I2): every layer state holds exactly `cached`
 * tokens; in decode exactly one token is chosen and not yet cached: `pending` while its step is in flight, else the last
 * of `tokens`. Rows share no array that is written.
 */
import type { MlxArray } from "../mlx/array.ts";
import type { LayerState } from "../nn/layer-state.ts";
import type { RowConstraint } from "./constraint.ts";
import type { RowDrafting } from "./row-drafting.ts";
import type { Sampler } from "./sampler.ts";
import { TokenList } from "./token-list.ts";

export interface RowLimits {
  /** Completion tokens at most, ≥ 1. */
  readonly maxNew: number;
  readonly eos: ReadonlySet<number>;
  /** Alternatives reported with each token; null: no log-probabilities. */
  readonly topLogprobs: number | null;
}

export class Row {
  /** Prompt and committed tokens. */
  readonly tokens: TokenList;
  readonly promptLength: number;
  /** Tokens that the states hold, counting steps that are scheduled. */
  cached = 0;
  /** uint32 [1]: the token chosen last while its step is in flight, owned by that step; null once it is committed. */
  pending: MlxArray | null = null;
  /** Completion tokens chosen, counting steps that are scheduled. */
  chosen = 0;
  /** False once disposed: results of steps still in flight are then dropped. */
  live = true;

  constructor(
    prompt: ArrayLike<number>,
    readonly states: readonly LayerState[],
    readonly sampler: Sampler,
    readonly limits: RowLimits,
    /** Lookup index and drafter context; null: the row never drafts. */
    readonly drafting: RowDrafting | null = null,
    /** What the completion must be, told of every committed token; null: free text. */
    readonly constraint: RowConstraint | null = null,
  ) {
    this.promptLength = prompt.length;
    this.tokens = new TokenList(prompt, Math.min(limits.maxNew, 4096));
  }

  /** True until the whole prompt is scheduled. */
  get inPrefill(): boolean {
    return this.cached < this.promptLength;
  }

  /** Completion tokens known on the host. */
  get committed(): number {
    return this.tokens.length - this.promptLength;
  }

  /** True when every token that the limit allows is chosen: nothing more is to be scheduled. */
  get exhausted(): boolean {
    return this.chosen >= this.limits.maxNew;
  }

  dispose(): void {
    if (!this.live) return;
    this.live = false;
    this.pending = null;
    for (const state of this.states) state.dispose();
    this.sampler.dispose();
    this.drafting?.session?.close();
    this.constraint?.[Symbol.dispose]();
  }
}
