/** `POST /v1/messages`: from the body to the internal form (http-anthropic.md §1). Pure. */
import { effortOf } from "../../text/chat/effort.ts";
import { jsonSchemaWish } from "../dialect/format.ts";
import { toolSetup } from "../dialect/tools.ts";
import { invalidRequest } from "../errors.ts";
import type { FormatWish, GenerationRequest, ReasoningWish } from "../generation/request.ts";
import { type ConversationOptions, conversationOf } from "./conversation.ts";
import type { MessagesBody } from "./schema.ts";
import { toolWish } from "./tools.ts";

/** How the answer is delivered; nothing of it reaches the engine. */
export interface Delivery {
  /** The request's `model`, or null to show the loaded one. */
  readonly model: string | null;
  readonly stream: boolean;
  /** False: thoughts are read and not told. */
  readonly showThinking: boolean;
  /** As asked for, before any limit. */
  readonly maxTokens: number | undefined;
}

export interface MessagesRequest {
  readonly generation: GenerationRequest;
  readonly delivery: Delivery;
}

/** Throws 400 naming the field. */
export function messagesRequest(body: MessagesBody, priority: 0 | 1, options: ConversationOptions): MessagesRequest {
  const { rendered, policy } = toolSetup(toolWish(body));
  const reasoning = reasoningWish(body);
  return {
    generation: {
      prompt: conversationOf(body, rendered, options),
      promptParam: "messages",
      maxTokens: body.max_tokens,
      temperature: body.temperature,
      topP: body.top_p,
      topK: body.top_k,
      minP: undefined,
      presencePenalty: undefined,
      frequencyPenalty: undefined,
      repetitionPenalty: undefined,
      logitBias: [],
      seed: undefined,
      stops: (body.stop_sequences ?? []).filter((stop) => stop !== ""),
      n: 1,
      ignoreEos: false,
      topLogprobs: null,
      priority,
      toolPolicy: policy,
      reasoning,
      format: formatWish(body.output_config?.format),
      formatParam: FORMAT_PARAM,
    },
    delivery: {
      model: body.model ?? null,
      stream: body.stream ?? false,
      showThinking: reasoning.thinking !== false,
      maxTokens: body.max_tokens,
    },
  };
}

/**
 * Everything but `disabled` means the model's own default, `budget_tokens` is advice, and an effort that is not
 * known says nothing: a 400 for any of them would cost a client its session.
 */
function reasoningWish({ thinking, output_config: output }: MessagesBody): ReasoningWish {
  const effort = typeof output?.effort === "string" ? effortOf(output.effort) : null;
  const off = thinking?.type === "disabled" || effort === "none";
  return { thinking: off ? false : undefined, effort: off || effort === null ? undefined : effort, split: true };
}

const FORMAT_PARAM = "output_config.format";

function formatWish(format: NonNullable<MessagesBody["output_config"]>["format"]): FormatWish | null {
  if (format?.type !== "json_schema") return null;
  const { schema } = format;
  if (schema === undefined) throw invalidRequest(`${FORMAT_PARAM}.schema`, `'${FORMAT_PARAM}.schema' is required`);
  // The field has neither a name nor strictness.
  return jsonSchemaWish({ name: "output", schema }, FORMAT_PARAM);
}
