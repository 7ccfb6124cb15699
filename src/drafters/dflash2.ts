/** DFlash 2's head: the target's logits give candidates, the selector a walk through them. drafters.md §4. */
import { concatenate, dim, type MlxArray } from "../mlx/array.ts";
import { add, view } from "../mlx/ops.ts";
import { uniform } from "../mlx/random.ts";
import type { BlockHead } from "./block-drafter.ts";
import { type DFlashEnds, embedWithTarget } from "./dflash.ts";
import type { Proposal, ProposalLaw } from "./drafter.ts";
import { biasOf, keyOf } from "./draw.ts";
import { scaled, softcapped } from "./dspark.ts";
import { coupledWalk, greedyWalk, type Selector, sampledWalk, type Walk, widenCandidates } from "./selector.ts";

/** The scored candidates of one row. */
export interface ScoredBlock {
  /** int32 [m, K] */
  readonly ids: MlxArray;
  /** float32 [m, K, K]: slot, candidate before, candidate. */
  readonly scores: MlxArray;
}

export class DFlash2Head implements BlockHead {
  readonly draftVocab: number;
  readonly hasConfidence = false;

  constructor(
    private readonly ends: DFlashEnds,
    private readonly selector: Selector,
  ) {
    this.draftVocab = ends.vocabulary.width;
  }

  embed(ids: MlxArray): MlxArray {
    return embedWithTarget(ids, this.ends);
  }

  logits(hidden: MlxArray): MlxArray {
    return this.ends.target.head(hidden);
  }

  choose(logits: MlxArray, hidden: MlxArray, anchor: MlxArray, law: ProposalLaw): Proposal {
    const { ids, scores } = this.scored(logits, hidden, anchor, law);
    const walk = this.walk(ids, scores, law);
    return {
      count: dim(ids, 0),
      ids: view(walk.ids, "uint32"),
      q: walk.q === null ? null : widenCandidates(ids, walk.q, law.vocab),
      confidence: null,
    };
  }

  scored(logits: MlxArray, hidden: MlxArray, anchor: MlxArray, law: ProposalLaw): ScoredBlock {
    const { vocabulary, outputMultiplier, softcap } = this.ends;
    const bias = biasOf(law, vocabulary);
    const capped = (x: MlxArray) => softcapped(scaled(x, outputMultiplier), softcap);
    const raw = vocabulary.clip(logits, law.vocab);
    // A bias belongs to final logits; without one they are needed for the candidates only.
    const best = this.selector.candidates(bias === null ? raw : add(capped(raw), bias));
    const unary = bias === null ? capped(best.logits) : best.logits;
    return { ids: best.ids, scores: this.selector.scores(best.ids, unary, hidden, anchor) };
  }

  private walk(ids: MlxArray, scores: MlxArray, law: ProposalLaw): Walk {
    if (law.kind === "greedy") return greedyWalk(ids, scores);
    if (law.kind === "coupled") {
      return coupledWalk(ids, scores, law.temperature, (slot) => keyOf(law, slot), law.vocab);
    }
    const u = Array.from({ length: dim(ids, 0) }, (_, slot) => uniform([1], keyOf(law, slot)));
    return sampledWalk(ids, scores, law.temperature, concatenate(u, 0));
  }

  dispose(): void {
    this.ends.vocabulary.dispose();
    this.selector.dispose();
  }
}
