/**
 * The internal form of a generation request, the same for every dialect: a dialect turns its body into this and
 * nothing below it knows which dialect it was. `undefined` means "not given: use the default".
 */
import type { LooseConversation } from "../../text/index.ts";

export type PromptSource =
  | { readonly kind: "chat"; readonly conversation: LooseConversation }
  | { readonly kind: "texts"; readonly texts: readonly string[] }
  | { readonly kind: "ids"; readonly ids: readonly (readonly number[])[] };

export interface GenerationRequest {
  readonly prompt: PromptSource;
  /** Body field that holds the prompt, for error messages. */
  readonly promptParam: string;
  readonly maxTokens: number | undefined;
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly topK: number | undefined;
  readonly minP: number | undefined;
  readonly presencePenalty: number | undefined;
  readonly frequencyPenalty: number | undefined;
  readonly repetitionPenalty: number | undefined;
  readonly logitBias: readonly (readonly [number, number])[];
  readonly seed: number | undefined;
  readonly stops: readonly string[];
  /** Choices per prompt. */
  readonly n: number;
  readonly ignoreEos: boolean;
  /** Alternatives reported with every token; null: no log-probabilities. */
  readonly topLogprobs: number | null;
  /** 0 interactive, 1 background. */
  readonly priority: 0 | 1;
}
