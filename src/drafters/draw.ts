/** One draft from one row of logits, by the request's law (decoding.md §4). The caller keeps the order of the keys. */
import { dtypeOf, type MlxArray } from "../mlx/array.ts";
import { add, argmax, astype, log } from "../mlx/ops.ts";
import { categorical } from "../mlx/random.ts";
import type { ProposalLaw } from "./drafter.ts";
import type { DraftVocabulary } from "./vocabulary.ts";

export interface Draw {
  /** Target id, uint32 [1]. */
  readonly id: MlxArray;
  /** float32 [1, vocab]; by the rejection law only. */
  readonly q: MlxArray | null;
}

/** What the law adds to logits of this drafter: float32 [1, clipped], or null. */
export function biasOf(law: ProposalLaw, vocabulary: DraftVocabulary): MlxArray | null {
  return law.bias === null ? null : vocabulary.restrict(law.bias, law.vocab);
}

/**
 * @param logits [1, clipped]
 * @param index of the draft in its round
 */
export function draw(
  logits: MlxArray,
  index: number,
  law: ProposalLaw,
  bias: MlxArray | null,
  vocabulary: DraftVocabulary,
): Draw {
  const shaped = bias === null ? logits : add(logits, bias);
  if (law.kind === "greedy") return { id: vocabulary.toTarget(argmax(shaped, -1)), q: null };
  const p = law.probabilities(dtypeOf(shaped) === "float32" ? shaped : astype(shaped, "float32"));
  const key = keyOf(law, index);
  if (law.kind === "rejection") {
    return { id: vocabulary.toTarget(categorical(log(p), -1, key)), q: vocabulary.widen(p, law.vocab, 0) };
  }
  // The target draws over its own width: only the same shape gives the same noise at the same id.
  return { id: categorical(log(vocabulary.widen(p, law.vocab, 0)), -1, key), q: null };
}

export function keyOf(law: Exclude<ProposalLaw, { kind: "greedy" }>, index: number): MlxArray {
  const key = law.keys[index];
  if (key === undefined) throw new RangeError(`the law has ${law.keys.length} keys, draft ${index} needs one more`);
  return key;
}
