import type { SamplingParams } from "../../src/decoding/sampling-params.ts";

/** Argmax, nothing else. */
export const GREEDY: SamplingParams = {
  temperature: 0,
  topP: 1,
  topK: 0,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  logitBias: [],
  seed: "0",
};
