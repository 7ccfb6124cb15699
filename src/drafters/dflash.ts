/**
 * DFlash's head: embedding and head are always the target's, and every mask slot predicts by itself, so that all drafts
 * of a block are chosen from independent rows of logits. drafters.md §4.
 */
import { concatenate, dim, type MlxArray } from "../mlx/array.ts";
import { argmax, slice } from "../mlx/ops.ts";
import type { TargetParts } from "../nn/target-parts.ts";
import type { BlockHead } from "./block-drafter.ts";
import type { Proposal, ProposalLaw } from "./drafter.ts";
import { biasOf, draw } from "./draw.ts";
import { scaled, softcapped } from "./dspark.ts";
import type { DraftVocabulary } from "./vocabulary.ts";

export interface DFlashEnds {
  readonly target: TargetParts;
  readonly vocabulary: DraftVocabulary;
  /** Multiplies embedded slots besides the target's own factor. */
  readonly embedScale: number;
  readonly outputMultiplier: number;
  readonly softcap: number | null;
}

/** Slots of a block, embedded with the target's table. */
export function embedWithTarget(ids: MlxArray, { target, embedScale }: DFlashEnds): MlxArray {
  return scaled(target.embed(ids), target.embedScale * embedScale);
}

export class DFlashHead implements BlockHead {
  readonly draftVocab: number;
  readonly hasConfidence = false;

  constructor(private readonly ends: DFlashEnds) {
    this.draftVocab = ends.vocabulary.width;
  }

  embed(ids: MlxArray): MlxArray {
    return embedWithTarget(ids, this.ends);
  }

  logits(hidden: MlxArray): MlxArray {
    const { target, outputMultiplier, softcap } = this.ends;
    return softcapped(scaled(target.head(hidden), outputMultiplier), softcap);
  }

  choose(logits: MlxArray, _hidden: MlxArray, _anchor: MlxArray, law: ProposalLaw): Proposal {
    const { vocabulary } = this.ends;
    const rows = vocabulary.clip(logits, law.vocab);
    const [count, width] = [dim(rows, 0), dim(rows, 1)];
    if (law.kind === "greedy" && law.bias === null) {
      return { count, ids: vocabulary.toTarget(argmax(rows, -1)), q: null, confidence: null };
    }
    const bias = biasOf(law, vocabulary);
    const drawn = Array.from({ length: count }, (_, i) =>
      draw(slice(rows, [i, 0], [i + 1, width]), i, law, bias, vocabulary),
    );
    const q = drawn.flatMap((one) => (one.q === null ? [] : [one.q]));
    return {
      count,
      ids: concatenate(
        drawn.map((one) => one.id),
        0,
      ),
      q: q.length === 0 ? null : concatenate(q, 0),
      confidence: null,
    };
  }

  dispose(): void {
    this.ends.vocabulary.dispose();
  }
}
