/**
 * One row's choice of the next token, on the device: logit transforms in a fixed order (decoding.md §5), then argmax or
 * a draw keyed by (seed, completion index). The choice depends on the row alone, never on its neighbours. Counts for the
 * penalties are kept as device arrays, so that the next step can be scheduled before this one's token is known.
 */
import type { ProposalLaw } from "../drafters/drafter.ts";
import {
  concatenate,
  dtypeOf,
  float32Array,
  free,
  int32Array,
  keep,
  type MlxArray,
  scalar,
  scope,
  shapeOf,
} from "../mlx/array.ts";
import {
  add,
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
import { categorical, randomKey, uniform } from "../mlx/random.ts";
import { type Acceptance, acceptEqual, acceptSampled } from "./accept.ts";
import { blockCounts } from "./block-counts.ts";
import { keyedDraws } from "./keyed-draws.ts";
import { drawBits, freshSeed } from "./rng.ts";
import type { SamplingParams } from "./sampling-params.ts";
import { ALL_TOKENS, maskedArgmax, maskedLogits, type TokenMask } from "./token-mask.ts";
import { GREEDY_BELOW, truncatedProbabilities } from "./truncation.ts";

/** What a grammar says of a verify block. */
export interface BlockLegality {
  /** One for each row of the logits. */
  readonly masks: readonly TokenMask[];
  /**
   * The draft behind the fed ones, int32 or uint32 [1], which is illegal there and was drawn from the last row of `q`:
   * a rejection, although it was not fed. null: the block was not cut, or by nothing that was drawn.
   */
  readonly refused: MlxArray | null;
}

/** Completion indices are far below it. */
const FIRST_EVENT = 2 ** 40;

export class Sampler {
  readonly seed: bigint;
  /** True when the choice is the argmax of the raw logits: rows of this kind are chosen together. */
  readonly plainGreedy: boolean;
  private readonly greedy: boolean;
  /** True when the request has a seed. */
  private readonly coupled: boolean;
  private events = 0;
  private readonly bias: MlxArray | null;
  /** float32 [1, V]: occurrences in the completion. */
  private counts: MlxArray | null = null;
  /** float32 [1, V]: occurrences in the prompt; never changes. */
  private readonly promptCounts: MlxArray | null;

  /** To be disposed by the owner. `vocab`: width of the logits that `choose` gets. */
  constructor(
    private readonly params: SamplingParams,
    private readonly vocab: number,
    prompt: ArrayLike<number>,
  ) {
    this.coupled = params.seed !== null;
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
   * @param mask of the tokens that may be chosen
   */
  choose(logits: MlxArray, index: number, mask: TokenMask = ALL_TOKENS): MlxArray {
    const shaped = this.transform(inFloat32(logits), this.counts);
    const token = this.greedy ? maskedArgmax(shaped, [mask]) : this.draw(maskedLogits(shaped, [mask]), index);
    this.count(token);
    return token;
  }

  private draw(logits: MlxArray, index: number): MlxArray {
    const probabilities = truncatedProbabilities(logits, this.params);
    return categorical(log(probabilities), -1, randomKey(drawBits(this.seed, index)));
  }

  /**
   * Which of a block's drafts stand, and the token behind them, by the same law that `choose` follows: the argmax; the
   * keyed draw when the request has a seed, so that the text is the same with and without drafts; else rejection.
   * Counts are not updated: what was committed is told by `committed`.
   * @param logits [m + 1, V] after the pending token and after each draft
   * @param draft int32 or uint32 [m]
   * @param q the law that the drafts were drawn from, float32 [m, V], with a row more for a refused draft; null: they
   *   were certain
   * @param index of the first completion token that is chosen
   * @param legality null: nothing is masked
   */
  accept(
    logits: MlxArray,
    draft: MlxArray,
    q: MlxArray | null,
    index: number,
    legality: BlockLegality | null = null,
  ): Acceptance {
    const [rows = 1, vocab = 0] = shapeOf(logits);
    const fed = reshape(draft, [1, rows - 1]);
    const masks = legality?.masks ?? [];
    const counts = this.counts === null ? null : reshape(blockCounts(this.counts, fed), [rows, vocab]);
    const shaped = this.transform(inFloat32(logits), counts);
    if (this.greedy) return acceptEqual(fed, reshape(maskedArgmax(shaped, masks), [1, rows]));
    const target = truncatedProbabilities(maskedLogits(shaped, masks), this.params);
    if (this.coupled) return acceptEqual(fed, reshape(keyedDraws(target, this.seed, index), [1, rows]));
    const refused = legality?.refused ?? null;
    const drafts = refused === null ? rows - 1 : rows;
    return acceptSampled({
      draft: refused === null ? fed : concatenate([fed, reshape(astype(refused, dtypeOf(fed)), [1, 1])], 1),
      target: reshape(target, [1, rows, vocab]),
      law: q === null ? null : reshape(q, [1, drafts, vocab]),
      uniform: uniform([1, drafts], this.eventKey()),
      key: this.eventKey(),
    });
  }

  /** How a drafter is to choose `count` drafts from completion index `index` on, so that they are likely to stand. */
  draftLaw(count: number, index: number): ProposalLaw {
    const common = { vocab: this.vocab, bias: this.bias };
    if (this.greedy) return { kind: "greedy", ...common };
    const keys = Array.from({ length: count }, (_, i) =>
      this.coupled ? randomKey(drawBits(this.seed, index + i)) : this.eventKey(),
    );
    return {
      kind: this.coupled ? "coupled" : "rejection",
      temperature: this.params.temperature,
      probabilities: (logits) => truncatedProbabilities(logits, this.params),
      keys,
      ...common,
    };
  }

  /** Counts what a round has committed. */
  committed(ids: readonly number[]): void {
    if (this.counts === null || ids.length === 0) return;
    scope(() =>
      this.addCounts(
        int32Array(ids, [1, ids.length]),
        float32Array(
          ids.map(() => 1),
          [1, ids.length],
        ),
      ),
    );
  }

  /** Key of the next draw of the rejection form: a sequence of its own, apart from the keys of completion tokens. */
  private eventKey(): MlxArray {
    return randomKey(drawBits(this.seed, FIRST_EVENT + this.events++));
  }

  /** logits and counts [n, V] */
  private transform(logits: MlxArray, counts: MlxArray | null): MlxArray {
    const { presencePenalty, frequencyPenalty, repetitionPenalty } = this.params;
    let shaped = this.bias === null ? logits : add(logits, this.bias);
    if (counts === null) return shaped;
    const zero = scalar(0, "float32");
    if (this.promptCounts !== null) {
      const seen = greater(add(counts, this.promptCounts), zero);
      const penalty = scalar(repetitionPenalty, "float32");
      const weakened = where(greater(shaped, zero), divide(shaped, penalty), multiply(shaped, penalty));
      shaped = where(seen, weakened, shaped);
    }
    if (presencePenalty !== 0) {
      const present = astype(greater(counts, zero), "float32");
      shaped = subtract(shaped, multiply(present, scalar(presencePenalty, "float32")));
    }
    if (frequencyPenalty !== 0) {
      shaped = subtract(shaped, multiply(counts, scalar(frequencyPenalty, "float32")));
    }
    return shaped;
  }

  private count(token: MlxArray): void {
    this.addCounts(reshape(token, [1, 1]), float32Array([1], [1, 1]));
  }

  private addCounts(ids: MlxArray, ones: MlxArray): void {
    if (this.counts === null) return;
    const next = keep(scatterAddAxis(this.counts, ids, ones, 1));
    free(this.counts);
    this.counts = next;
  }

  dispose(): void {
    for (const array of [this.bias, this.counts, this.promptCounts]) if (array !== null) free(array);
    this.counts = null;
  }
}

function inFloat32(logits: MlxArray): MlxArray {
  return dtypeOf(logits) === "float32" ? logits : astype(logits, "float32");
}

/** float32 [1, vocab] with the values added up at their ids. */
function dense(pairs: readonly (readonly [number, number])[], vocab: number): MlxArray {
  const row = new Float32Array(vocab);
  for (const [id, value] of pairs) if (id < vocab) row[id] = (row[id] ?? 0) + value;
  return scope(() => keep(float32Array(row, [1, vocab])));
}
