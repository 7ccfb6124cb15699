/** The sampling law of one request, and what is reported of a committed token. Plain values: they cross threads. */

export interface SamplingParams {
  /** 0 = greedy. */
  readonly temperature: number;
  /** (0, 1]; 1 = off. */
  readonly topP: number;
  /** 0 = off. */
  readonly topK: number;
  /** [0, 1]; 0 = off. */
  readonly minP: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** > 0; 1 = off. Over prompt and completion. */
  readonly repetitionPenalty: number;
  /** Pairs [token id, bias] added to the raw logits. */
  readonly logitBias: readonly (readonly [number, number])[];
  /** Unsigned 64-bit seed as a decimal string; null: the engine draws one and reports it. */
  readonly seed: string | null;
}

/** log-probabilities (natural log) of one committed token, from the raw logits before any transform. */
export interface TokenLogprob {
  readonly id: number;
  readonly logprob: number;
  /** Best alternatives, most likely first, as many as were asked for. */
  readonly top: readonly (readonly [number, number])[];
}
