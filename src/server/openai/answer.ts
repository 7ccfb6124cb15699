/** What both OpenAI answers share: their head (id, time, model), usage, and the finish reason of a choice. */
import { type Static, type TSchema, Type as t } from "@sinclair/typebox";
import { hexId } from "../dialect/fresh-id.ts";
import { notReady } from "../errors.ts";
import type { ChoiceEndReason, ChoiceEvent } from "../generation/events.ts";
import type { GenerationJob } from "../generation/job.ts";
import type { TokenUsage } from "../generation/report.ts";
import type { TextSource } from "../generation/text.ts";
import { count, oneOf } from "../openapi/schemas.ts";
import type { Delivery } from "./fields.ts";

/** Fields of every answer and chunk. */
export function headFields<T extends TSchema>(object: T) {
  return {
    id: t.String(),
    object,
    created: t.Integer({ description: "Unix seconds." }),
    model: t.String(),
    system_fingerprint: t.Null(),
  };
}

export const usageSchema = t.Object(
  {
    prompt_tokens: count,
    completion_tokens: count,
    total_tokens: count,
    prompt_tokens_details: t.Object({ cached_tokens: count }),
    completion_tokens_details: t.Object({ reasoning_tokens: count }),
  },
  { $id: "Usage" },
);

export const finishSchema = oneOf("stop", "length", "tool_calls");
export const tokenIds = t.Array(count);

/** `x_mlx_dspark.spans` of a chunk. */
export const spansSchema = t.Object({
  spans: t.Array(t.Tuple([t.Integer({ minimum: 1 }), t.String({ pattern: "^[dlft]$" })]), {
    description: "UTF-16 length and source: d drafter, l lookup, f forced by a grammar, t the target itself.",
  }),
});

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

/** The beginning of an answer or chunk. With the choices at once: each token makes one, and a copy would show. */
export function head<const T extends string, C>(context: AnswerContext, object: T, choices: C[]) {
  const model = context.delivery.model ?? context.job.model.id;
  return { id: context.id, object, created: context.created, model, system_fingerprint: null, choices };
}

export function usageBody(usage: TokenUsage): Static<typeof usageSchema> {
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
export function finishReason(reason: ChoiceEndReason): Static<typeof finishSchema> {
  if (reason === "cancelled") throw notReady("the server is shutting down");
  return reason;
}

/**
 * Of a chunk with text, where the text came from: `[UTF-16 length, letter]`, with the letters of web.md §2 (d: drafter,
 * l: lookup, f: forced by a grammar, t: the target itself). Null for others, and when nobody asked.
 */
export function spansOf(event: ChoiceEvent): Static<typeof spansSchema> | null {
  if (!("spans" in event) || event.spans === undefined) return null;
  return { spans: event.spans.map(([length, source]) => [length, source.charAt(0)]) };
}
