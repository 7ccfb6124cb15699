/** What both OpenAI answers share: their head (id, time, model), usage, and the finish reason of a choice. */
import { hexId } from "../dialect/fresh-id.ts";
import { notReady } from "../errors.ts";
import type { ChoiceEndReason, ChoiceEvent } from "../generation/events.ts";
import type { GenerationJob } from "../generation/job.ts";
import type { TokenUsage } from "../generation/report.ts";
import type { TextSource } from "../generation/text.ts";
import type { Delivery } from "./fields.ts";

export interface AnswerContext {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly job: GenerationJob;
  readonly delivery: Delivery;
  readonly text: Pick<TextSource, "tokenBytes">;
}

/** @param prefix `chatcmpl` or `cmpl`; the id gets 32 hex digits. */
export function answerContext(
  prefix: string,
  job: GenerationJob,
  delivery: Delivery,
  text: Pick<TextSource, "tokenBytes">,
): AnswerContext {
  return { id: hexId(`${prefix}-`), created: Math.floor(Date.now() / 1000), job, delivery, text };
}

export function head(context: AnswerContext, object: string) {
  const model = context.delivery.model ?? context.job.model.id;
  return { id: context.id, object, created: context.created, model, system_fingerprint: null };
}

export function usageBody(usage: TokenUsage) {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  };
}

/**
 * A choice that was cut from outside has no finish reason: the answer fails. A lost client is not there to read it,
 * so the words are those for the other cause.
 */
export function finishReason(reason: ChoiceEndReason): Exclude<ChoiceEndReason, "cancelled"> {
  if (reason === "cancelled") throw notReady("the server is shutting down");
  return reason;
}

/**
 * Of a chunk with text, where the text came from: `[UTF-16 length, letter]`, with the letters of web.md §2 (d: drafter,
 * l: lookup, f: forced by a grammar, t: the target itself). Null for others, and when nobody asked.
 */
export function spansOf(event: ChoiceEvent): { readonly spans: (readonly [number, string])[] } | null {
  if (!("spans" in event) || event.spans === undefined) return null;
  return { spans: event.spans.map(([length, source]) => [length, source.charAt(0)]) };
}
