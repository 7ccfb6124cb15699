/**
 * DSpark's head: own or borrowed embedding and head, a Markov head that walks the block token by token, an optional
 * reduced vocabulary and an optional confidence head. drafters.md §2.
 */
import { concatenate, dim, dtypeOf, free, type MlxArray, NONE, scalar } from "../mlx/array.ts";
import { add, divide, multiply, reshape, slice, tanh, view } from "../mlx/ops.ts";
import type { Embedding, Linear } from "../nn/compute.ts";
import type { TargetParts } from "../nn/target-parts.ts";
import type { BlockHead } from "./block-drafter.ts";
import type { ConfidenceHead } from "./confidence.ts";
import type { Proposal, ProposalLaw } from "./drafter.ts";
import { biasOf, draw } from "./draw.ts";
import type { MarkovHead } from "./markov.ts";
import { type DraftVocabulary, withinTable } from "./vocabulary.ts";

export interface DSparkParts {
  /** null: the target's table. */
  readonly embedding: Embedding | null;
  /** Factor of its own table's rows; a borrowed table has the target's. */
  readonly embedScale: number;
  /** null: the target's matrix. */
  readonly head: Linear | null;
  readonly target: TargetParts;
  /** Rows of the drafter's own tables by target id. */
  readonly vocab: number;
  readonly vocabulary: DraftVocabulary;
  readonly softcap: number | null;
  readonly markov: MarkovHead | null;
  readonly confidence: ConfidenceHead | null;
  /** [block, H] added to the embedded slots, or NONE. */
  readonly slotOffsets: MlxArray;
}

/** What a walk over the block leaves; `steps` are the logits from which each draft was chosen. */
export interface DSparkWalk extends Proposal {
  readonly steps: readonly MlxArray[];
}

export class DSparkHead implements BlockHead {
  readonly draftVocab: number;
  readonly hasConfidence: boolean;

  constructor(private readonly parts: DSparkParts) {
    this.draftVocab = parts.vocabulary.width;
    this.hasConfidence = parts.confidence !== null;
  }

  embed(ids: MlxArray, width: number): MlxArray {
    const { embedding, embedScale, target, slotOffsets } = this.parts;
    const rows = embedding === null ? target.embed(ids) : embedding.lookup(this.known(ids));
    const slots = scaled(rows, embedding === null ? target.embedScale : embedScale);
    if (slotOffsets === NONE) return slots;
    const hidden = dim(slots, 1);
    const offsets = slice(slotOffsets, [0, 0], [width, hidden]);
    return reshape(add(reshape(slots, [-1, width, hidden]), offsets), [-1, hidden]);
  }

  logits(hidden: MlxArray): MlxArray {
    const { head, target, softcap, vocabulary } = this.parts;
    const product = head === null ? target.head(hidden, vocabulary.width) : head.apply(hidden);
    return softcapped(vocabulary.own(product), softcap);
  }

  choose(logits: MlxArray, hidden: MlxArray, anchor: MlxArray, law: ProposalLaw): Proposal {
    const { vocabulary, markov, confidence } = this.parts;
    const greedy = law.kind === "greedy" && law.bias === null && vocabulary.sameIds ? (markov?.greedy ?? null) : null;
    if (greedy === null) return this.walk(logits, hidden, anchor, law);
    const { ids, features } = greedy(logits, anchor, vocabulary.clipped(dim(logits, 1), law.vocab));
    return { count: dim(logits, 0), ids, q: null, confidence: confidence?.logits(hidden, features) ?? null };
  }

  /** As `choose`, with the logits of every step. */
  walk(logits: MlxArray, hidden: MlxArray, anchor: MlxArray, law: ProposalLaw): DSparkWalk {
    const { vocabulary, markov, confidence } = this.parts;
    const [count, width, size] = [dim(logits, 0), dim(logits, 1), dim(hidden, 1)];
    const chain = markov?.chain() ?? null;
    const bias = biasOf(law, vocabulary);
    const steps: MlxArray[] = [];
    const features: MlxArray[] = [];
    const ids: MlxArray[] = [];
    const q: MlxArray[] = [];
    let before = anchor;
    for (let i = 0; i < count; i++) {
      let step = slice(logits, [i, 0], [i + 1, width]);
      if (markov !== null && chain !== null) {
        const known = markov.features(this.known(before));
        step = chain.step(step, slice(hidden, [i, 0], [i + 1, size]), known);
        features.push(known);
      }
      const drawn = draw(vocabulary.clip(step, law.vocab), i, law, bias, vocabulary);
      steps.push(step);
      ids.push(drawn.id);
      if (drawn.q !== null) q.push(drawn.q);
      before = view(drawn.id, "int32");
    }
    return {
      count,
      ids: concatenate(ids, 0),
      q: q.length === 0 ? null : concatenate(q, 0),
      confidence: confidence?.logits(hidden, features.length === 0 ? null : concatenate(features, 0)) ?? null,
      steps,
    };
  }

  /** Target ids as rows of the drafter's own tables. */
  private known(ids: MlxArray): MlxArray {
    return withinTable(ids, this.parts.vocab, this.parts.target.vocabSize);
  }

  dispose(): void {
    const { embedding, head, vocabulary, markov, confidence, slotOffsets } = this.parts;
    for (const part of [embedding, head, vocabulary, markov, confidence]) part?.dispose();
    if (slotOffsets !== NONE) free(slotOffsets);
  }
}

/** x · factor, without an op for 1. */
export function scaled(x: MlxArray, factor: number): MlxArray {
  return factor === 1 ? x : multiply(x, scalar(factor, dtypeOf(x)));
}

/** tanh(x / cap) · cap; null: x. */
export function softcapped(x: MlxArray, cap: number | null): MlxArray {
  if (cap === null) return x;
  const limit = scalar(cap, dtypeOf(x));
  return multiply(tanh(divide(x, limit)), limit);
}
