/**
 * The one contract of all drafters. A drafter holds weights; a session holds the context of one row. The verify loop
 * knows neither the architecture nor the layout. Nothing here waits for the device: proposals are graphs that go into
 * the target's verify. Whatever a drafter proposes, the target's check keeps the output lossless.
 */
import type { MlxArray } from "../mlx/array.ts";

export type DrafterKind = "dspark" | "dflash" | "dflash2";

/** How drafts are chosen. All arrays belong to the caller. */
export type ProposalLaw = (
  | { readonly kind: "greedy" }
  /** draft_i ~ q_i, and q is returned for the accept test. */
  | ({ readonly kind: "rejection" } & SampledLaw)
  /** draft_i is the draw that the target will make at the same position, from the drafter's distribution. */
  | ({ readonly kind: "coupled" } & SampledLaw)
) & {
  /** Width of the target's logits without padding: the distributions q and the coupled draws have this width. */
  readonly vocab: number;
  /** float32 [1, vocab] added to logits (logit_bias and penalties; moves acceptance only), or null. */
  readonly bias: MlxArray | null;
};

export interface SampledLaw {
  /** > 0 */
  readonly temperature: number;
  /** Temperature and truncation: float32 logits [n, width] → probabilities [n, width]. */
  probabilities(logits: MlxArray): MlxArray;
  /** MLX keys, one per draft position; at least as many as drafts. */
  readonly keys: readonly MlxArray[];
}

/** The drafts of one round and row; arrays of the open scope, not evaluated. */
export interface Proposal {
  /** Number of drafts m. */
  readonly count: number;
  /** Target ids, uint32 [m]. */
  readonly ids: MlxArray;
  /** float32 [m, vocab], by the rejection law only. */
  readonly q: MlxArray | null;
  /** Logits of "draft i is right if those before it are", [m]; null without a confidence head. */
  readonly confidence: MlxArray | null;
}

/** One row's part of a batched block. */
export interface DraftRow {
  readonly session: DrafterSession;
  /** The last committed token, not yet in the target's cache: int32 or uint32 [1]. */
  readonly anchor: MlxArray;
  /** Most drafts wanted, ≥ 1; more than `maxDraft` counts as that. */
  readonly cap: number;
  readonly law: ProposalLaw;
}

export interface DrafterSession {
  /** Committed positions, absolute: what the context ends at. */
  readonly length: number;
  /** Drafts after the anchor; to be called inside a scope. */
  propose(anchor: MlxArray, cap: number, law: ProposalLaw): Proposal;
  /**
   * Appends the rows of newly committed positions: taps [n, taps·hidden] of the target, in layer order. Inside a scope;
   * the new state is among `arrays()`, to be evaluated with a step.
   * @param late no draft follows soon: the rows may wait for others
   */
  committed(taps: MlxArray, late?: boolean): void;
  /** Forgets every position from `length` on (prefix reuse). Rejected drafts need none: they were never appended. */
  trim(length: number): void;
  arrays(): readonly MlxArray[];
  readonly bytes: number;
  close(): void;
}

export interface Drafter {
  readonly kind: DrafterKind;
  /** The checkpoint's layout, e.g. "speculators". */
  readonly layout: string;
  /** Layers whose outputs `committed` wants, ascending; −1 is the embedding's output. */
  readonly taps: readonly number[];
  /** Most drafts of one round. */
  readonly maxDraft: number;
  /** Ids that it can propose; fewer than the target's for a reduced vocabulary. */
  readonly draftVocab: number;
  readonly hasConfidence: boolean;
  /** Bytes of its own weights in memory; borrowed matrices of the target do not count. */
  readonly bytes: number;
  readonly notes: readonly string[];
  /**
   * @param capacityMax most positions that the row can reach
   * @param start position of the first row that will be appended (a prefix whose rows are not there)
   */
  newSession(capacityMax: number, start?: number): DrafterSession;
  /** Drafts for several rows of this drafter in one forward. */
  propose(rows: readonly DraftRow[]): Proposal[];
  /** Frees the weights; sessions must be closed before. */
  dispose(): void;
}
