/** A Messages answer in one piece (http-anthropic.md §3): its head, blocks, stop reason and usage. Pure. */
import { type Static, Type as t } from "@sinclair/typebox";
import { parseJsonKeepingNumbers } from "../../text/json-numbers.ts";
import { notReady } from "../errors.ts";
import type { ChoicePiece, ChoiceResult } from "../generation/events.ts";
import type { GenerationJob } from "../generation/job.ts";
import { referenceSchema, reportBlock, reportSchema, type TokenUsage, usageOf } from "../generation/report.ts";
import { count, oneOf, orNull } from "../openapi/schemas.ts";
import type { ServerOptions } from "../options.ts";
import { BlockStream } from "./block-stream.ts";
import type { Delivery } from "./request.ts";

/** Clients send it back with the thoughts; nothing here checks it. */
export const SIGNATURE = "mlx-dspark";

export const blockSchema = t.Union(
  [
    t.Object({ type: t.Literal("text"), text: t.String() }),
    t.Object({ type: t.Literal("thinking"), thinking: t.String(), signature: t.String() }),
    t.Object({
      ...{ type: t.Literal("tool_use"), id: t.String(), name: t.String() },
      input: t.Unknown({ description: "An object." }),
    }),
  ],
  { $id: "MessageBlock" },
);

export const inputFields = { input_tokens: count, cache_read_input_tokens: count };

const headFields = {
  id: t.String(),
  type: t.Literal("message"),
  role: t.Literal("assistant"),
  model: t.String(),
  content: t.Array(blockSchema),
  usage: t.Object({ ...inputFields, cache_creation_input_tokens: count, output_tokens: count }),
};

export const stopFields = {
  stop_reason: oneOf("end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"),
  stop_sequence: orNull(t.String()),
};

export const messageSchema = t.Object({ ...headFields, ...stopFields, x_mlx_dspark: reportSchema }, { $id: "Message" });

/** Of an answer that has only begun. */
export const startedMessageSchema = t.Object(
  { ...headFields, stop_reason: t.Null(), stop_sequence: t.Null(), x_mlx_dspark: referenceSchema },
  { $id: "StartedMessage" },
);

type Block = Static<typeof blockSchema>;
const stopSchema = t.Object(stopFields);

export interface AnswerContext {
  /** `msg_` and 24 hex digits. */
  readonly id: string;
  readonly job: GenerationJob;
  readonly delivery: Delivery;
  readonly options: Pick<ServerOptions, "defaultMaxTokens" | "maxTokensCap">;
}

/** The whole answer. */
export function messageAnswer(context: AnswerContext, results: readonly ChoiceResult[]): Static<typeof messageSchema> {
  const [result] = results;
  if (result === undefined) throw new Error("an answer without a choice");
  const usage = usageOf(context.job, results);
  return {
    ...messageHead(context),
    content: contentOf(result.pieces, context.delivery),
    ...stopOf(context, { ...result, hasCalls: result.calls.length > 0 }),
    usage: { ...inputUsage(usage), cache_creation_input_tokens: 0, output_tokens: usage.completionTokens },
    x_mlx_dspark: reportBlock(context.job.id, usage, results),
  };
}

export function messageHead({ id, job, delivery }: AnswerContext) {
  const kind = { type: "message", role: "assistant" } as const;
  return { id, ...kind, model: delivery.model ?? job.model.id };
}

/** The prompt is the sum: what was read again is not input, or clients would count it twice. */
export function inputUsage({ promptTokens, cachedTokens }: Pick<TokenUsage, "promptTokens" | "cachedTokens">) {
  return { input_tokens: promptTokens - cachedTokens, cache_read_input_tokens: cachedTokens };
}

type Ending = Pick<ChoiceResult, "reason" | "stopString"> & { readonly hasCalls: boolean };

/** A choice that was cut from outside has no stop reason: the answer fails. */
export function stopOf(context: AnswerContext, { reason, stopString, hasCalls }: Ending): Static<typeof stopSchema> {
  if (reason === "cancelled") throw notReady("the server is shutting down");
  if (hasCalls || reason === "tool_calls") return { stop_reason: "tool_use", stop_sequence: null };
  if (reason === "length") {
    return { stop_reason: windowEnded(context) ? "model_context_window_exceeded" : "max_tokens", stop_sequence: null };
  }
  if (stopString !== null) return { stop_reason: "stop_sequence", stop_sequence: stopString };
  return { stop_reason: "end_turn", stop_sequence: null };
}

/** Whether it was the context window, and neither the client's limit nor the server's, that left no more room. */
function windowEnded({ job, delivery, options }: AnswerContext): boolean {
  const wanted = Math.min(delivery.maxTokens ?? options.defaultMaxTokens, options.maxTokensCap);
  return job.rows.some(({ request }) => request.maxNewTokens < wanted);
}

function contentOf(pieces: readonly ChoicePiece[], delivery: Delivery): Block[] {
  const stream = new BlockStream();
  const steps = pieces.flatMap((piece) => {
    if (piece.type === "call") return stream.call(piece.call);
    if (piece.type === "text") return stream.text("text", piece.text);
    return delivery.showThinking ? stream.text("thinking", piece.text) : [];
  });
  const texts: string[] = [];
  return [...steps, ...stream.finish()].flatMap((step): Block[] => {
    if (step.type === "delta") texts.push(step.text);
    if (step.type !== "stop") return [];
    const text = texts.splice(0).join("");
    if (step.block === "text") return [{ type: "text", text }];
    if (step.block === "thinking") return [{ type: "thinking", thinking: text.trim(), signature: SIGNATURE }];
    return [{ type: "tool_use", ...step.block, input: parseJsonKeepingNumbers(text) }];
  });
}
