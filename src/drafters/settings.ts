/** What a drafter is once its packaging has been read: one flat record per kind (drafters.md §2 and §4). */
import type { RopeSpec } from "../nn/rope.ts";

/** Who sees whom in one layer; query i of a block stands at position n + i when the context holds n rows. */
export interface LayerMask {
  /** Keys older than n + i − window + 1 are hidden; null: none are. */
  readonly window: number | null;
  /** Block row k is seen by query i only for k ≤ i. */
  readonly causal: boolean;
  /** The window hides rows of the block, too (DSpark); DFlash's never does. */
  readonly windowsBlock: boolean;
}

export interface ConvSettings {
  /** Length of the kernel, in slots. */
  readonly taps: number;
  /** Channels that share dynamic coefficients. */
  readonly group: number;
}

export interface BackboneSettings {
  readonly family: "qwen" | "gemma4";
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly eps: number;
  readonly rope: RopeSpec;
  /** Factor of q·k. */
  readonly scale: number;
  readonly attentionBias: boolean;
  /** q_proj gives [q, gate] per head; the gate's sigmoid multiplies the head's output. */
  readonly gatedQ: boolean;
  /** Norm weights are stored as w − 1. */
  readonly offsetNorms: boolean;
  /** No v_proj: values are the normed, unrotated keys. */
  readonly valuesFromKeys: boolean;
  /** A learned logit per head that takes softmax mass and gives no value. */
  readonly sinks: boolean;
  readonly layers: readonly LayerMask[];
  readonly conv: ConvSettings | null;
}

interface BlockSettings {
  /** The packaging's name, for messages and `/health`. */
  readonly layout: string;
  readonly backbone: BackboneSettings;
  /** Target layers whose outputs are fused, strictly ascending; −1 is the embedding's output. */
  readonly taps: readonly number[];
  /** Slots of a block, the anchor's included. */
  readonly block: number;
  readonly maskId: number;
  /** First slot that predicts; 0 is the anchor's. */
  readonly logitsStart: number;
  readonly vocab: number;
  /** The drafter's own cap of logits, tanh(x/s)·s. */
  readonly softcap: number | null;
}

export type MarkovType = "vanilla" | "gated" | "rnn";

export interface DSparkSettings extends BlockSettings {
  readonly kind: "dspark";
  readonly ownEmbed: boolean;
  readonly ownHead: boolean;
  /** Rows of the head where they are fewer than `vocab`: `d2t` then maps them. */
  readonly draftVocab: number | null;
  /** Drafts come from the first so many ids, which then must be the frequent ones; null: from all. */
  readonly idLimit: number | null;
  readonly markov: { readonly type: MarkovType; readonly rank: number } | null;
  /** What the confidence head reads; null: there is none. */
  readonly confidence: "hidden" | "hidden+markov" | null;
  readonly logSnr: { readonly min: number; readonly max: number } | null;
}

export interface DFlashSettings extends BlockSettings {
  readonly kind: "dflash" | "dflash2";
  readonly embedScale: number;
  readonly outputMultiplier: number;
  readonly selector: { readonly rank: number; readonly topK: number } | null;
}

export type DrafterSettings = DSparkSettings | DFlashSettings;
