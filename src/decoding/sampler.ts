/**
 * One row's choice of the next token, on the device: logit transforms in a fixed order (decoding.md §5), then argmax or
 * a draw keyed by (seed, completion index). The choice depends on the row alone, never on its neighbours. Counts for the
 * penalties are kept as device arrays, so that the next step can be scheduled before this one's token is known.
 */
import { dtypeOf, float32Array, free, keep, type MlxArray, scalar, scope } from "../mlx/array.ts";
import {
  add,
  argmax,
  astype,
  divide,
  greater,
  log,
  multiply,
  reshape,
  scatterAddAxis,
  subtract,
  where,
  zeros,
} from "../mlx/ops.ts";
import { categorical, randomKey } from "../mlx/random.ts";
import { drawBits, freshSeed } from "./rng.ts";
import type { SamplingParams } from "./sampling-params.ts";
import { GREEDY_BELOW, truncatedProbabilities } from "./truncation.ts";

export class Sampler {
  readonly seed: bigint;
  /** True when the choice is the argmax of the raw logits: rows of this kind are chosen together. */
  readonly plainGreedy: boolean;
  private readonly greedy: boolean;
  private readonly bias: MlxArray | null;
  /** float32 [1, V]: occurrences in the completion. */
  private counts: MlxArray | null = null;
  /** float32 [1, V]: occurrences in the prompt; never changes. */
  private readonly promptCounts: MlxArray | null;

  /** To be disposed by the owner. `vocab`: width of the logits that `choose` gets. */
  constructor(
    private readonly params: SamplingParams,
    vocab: number,
    prompt: ArrayLike<number>,
  ) {
    this.seed = params.seed === null ? freshSeed() : BigInt.asUintN(64, BigInt(params.seed));
    this.greedy = params.temperature < GREEDY_BELOW;
    const penalized = params.presencePenalty !== 0 || params.frequencyPenalty !== 0;
    const repetition = params.repetitionPenalty !== 1;
    this.bias = params.logitBias.length === 0 ? null : dense(params.logitBias, vocab);
    if (penalized || repetition) this.counts = scope(() => keep(zeros([1, vocab], "float32")));
    this.promptCounts = repetition
      ? dense(
          Array.from(prompt, (id) => [id, 1] as const),
          vocab,
        )
      : null;
    this.plainGreedy = this.greedy && this.bias === null && this.counts === null;
  }

  /**
   * logits [1, V] in the model's dtype → uint32 [1].
   * @param index of the completion token that is chosen
   */
  choose(logits: MlxArray, index: number): MlxArray {
    const shaped = this.transform(dtypeOf(logits) === "float32" ? logits : astype(logits, "float32"));
    const token = this.greedy ? argmax(shaped, -1) : this.draw(shaped, index);
    this.count(token);
    return token;
  }

  private draw(logits: MlxArray, index: number): MlxArray {
    const probabilities = truncatedProbabilities(logits, this.params);
    return categorical(log(probabilities), -1, randomKey(drawBits(this.seed, index)));
  }

  private transform(logits: MlxArray): MlxArray {
    const { presencePenalty, frequencyPenalty, repetitionPenalty } = this.params;
    let shaped = this.bias === null ? logits : add(logits, this.bias);
    if (this.counts === null) return shaped;
    const zero = scalar(0, "float32");
    if (this.promptCounts !== null) {
      const seen = greater(add(this.counts, this.promptCounts), zero);
      const penalty = scalar(repetitionPenalty, "float32");
      const weakened = where(greater(shaped, zero), divide(shaped, penalty), multiply(shaped, penalty));
      shaped = where(seen, weakened, shaped);
    }
    if (presencePenalty !== 0) {
      const present = astype(greater(this.counts, zero), "float32");
      shaped = subtract(shaped, multiply(present, scalar(presencePenalty, "float32")));
    }
    if (frequencyPenalty !== 0) {
      shaped = subtract(shaped, multiply(this.counts, scalar(frequencyPenalty, "float32")));
    }
    return shaped;
  }

  private count(token: MlxArray): void {
    if (this.counts === null) return;
    const next = keep(scatterAddAxis(this.counts, reshape(token, [1, 1]), scalarRow(1), 1));
    free(this.counts);
    this.counts = next;
  }

  dispose(): void {
    for (const array of [this.bias, this.counts, this.promptCounts]) if (array !== null) free(array);
    this.counts = null;
  }
}

function scalarRow(value: number): MlxArray {
  return float32Array([value], [1, 1]);
}

/** float32 [1, vocab] with the values added up at their ids. */
function dense(pairs: readonly (readonly [number, number])[], vocab: number): MlxArray {
  const row = new Float32Array(vocab);
  for (const [id, value] of pairs) if (id < vocab) row[id] = (row[id] ?? 0) + value;
  return scope(() => keep(float32Array(row, [1, vocab])));
}
