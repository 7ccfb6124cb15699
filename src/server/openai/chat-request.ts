/** `POST /v1/chat/completions`: the body's schema and its way into the internal form (http-openai.md §2). */
import { type Static, Type as t } from "@sinclair/typebox";
import { deeperThan, NESTING_MAX } from "../dialect/depth.ts";
import { clip } from "../dialect/words.ts";
import { invalidRequest } from "../errors.ts";
import type { GenerationRequest } from "../generation/request.ts";
import { chatMessages, messageSchema } from "./chat-messages.ts";
import { type Delivery, sharedFields, sharedRequest, unsupported } from "./fields.ts";

export const chatBodySchema = t.Object(
  {
    ...sharedFields,
    messages: t.Array(messageSchema, { minItems: 1, "x-must-be": "a non-empty list" }),
    max_completion_tokens: t.Optional(t.Integer({ minimum: 1, description: "Wins over max_tokens." })),
    logprobs: t.Optional(t.Boolean()),
    top_logprobs: t.Optional(t.Integer({ minimum: 0, maximum: 20 })),
    tools: t.Optional(t.Array(t.Unknown())),
    tool_choice: t.Optional(t.Unknown()),
    parallel_tool_calls: t.Optional(t.Boolean()),
    modalities: t.Optional(t.Array(t.String())),
    enable_thinking: t.Optional(t.Boolean()),
    reasoning_effort: t.Optional(t.Unknown({ description: "none, minimal, low, medium, high, xhigh or max" })),
    chat_template_kwargs: t.Optional(t.Record(t.String(), t.Unknown())),
  },
  { additionalProperties: true },
);

export type ChatBody = Static<typeof chatBodySchema>;

export interface ChatRequest {
  readonly generation: GenerationRequest;
  readonly delivery: Delivery;
}

/** Body → internal form; throws 400 naming the field. */
export function chatRequest(body: ChatBody, priority: 0 | 1): ChatRequest {
  refuseTools(body);
  if (body.top_logprobs !== undefined && body.logprobs !== true) {
    throw invalidRequest("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  const audio = body.modalities?.find((modality) => modality !== "text");
  if (audio !== undefined) throw unsupported("modalities", `modality '${clip(audio)}'`);
  return {
    generation: {
      ...sharedRequest(body),
      prompt: {
        kind: "chat",
        conversation: { messages: chatMessages(body.messages), kwargs: templateKwargs(body) },
      },
      promptParam: "messages",
      maxTokens: body.max_completion_tokens ?? body.max_tokens,
      topLogprobs: body.logprobs === true ? (body.top_logprobs ?? 0) : null,
      priority,
    },
    delivery: {
      model: body.model ?? null,
      stream: body.stream ?? false,
      includeUsage: body.stream_options?.include_usage ?? false,
      logprobs: body.logprobs ?? false,
      returnTokenIds: body.return_token_ids ?? false,
    },
  };
}

/** `tool_choice: "none"` means that tools are not rendered and nothing is parsed, which holds already. */
function refuseTools(body: ChatBody): void {
  if (body.tool_choice === "none") return;
  if (body.tools !== undefined && body.tools.length > 0) throw unsupported("tools", "'tools'");
  if (body.tool_choice !== undefined) throw unsupported("tool_choice", "a 'tool_choice' other than 'none'");
}

/** Scale of tool-calls.md §6; the outer words are mapped onto it. */
const EFFORTS: ReadonlyMap<unknown, string> = new Map([
  ["minimal", "low"],
  ["low", "low"],
  ["medium", "medium"],
  ["high", "high"],
  ["xhigh", "xhigh"],
  ["max", "xhigh"],
]);

/** `chat_template_kwargs`, over which the named fields win. */
function templateKwargs(body: ChatBody): Readonly<Record<string, unknown>> {
  const kwargs: Record<string, unknown> = { ...body.chat_template_kwargs };
  for (const reserved of ["messages", "tools", "add_generation_prompt"]) {
    if (Object.hasOwn(kwargs, reserved)) {
      throw invalidRequest("chat_template_kwargs", `'chat_template_kwargs' must not set '${reserved}'`);
    }
  }
  if (deeperThan(kwargs, NESTING_MAX)) {
    throw invalidRequest("chat_template_kwargs", `'chat_template_kwargs' is nested deeper than ${NESTING_MAX}`);
  }
  if (body.reasoning_effort === "none") {
    kwargs.enable_thinking = false;
  } else if (body.reasoning_effort !== undefined) {
    const effort = EFFORTS.get(body.reasoning_effort);
    if (effort === undefined) {
      const given =
        typeof body.reasoning_effort === "string" ? clip(body.reasoning_effort) : typeof body.reasoning_effort;
      const message = `reasoning_effort must be one of low, medium, high, xhigh, got '${given}'`;
      throw invalidRequest("reasoning_effort", message);
    }
    kwargs.reasoning_effort = effort;
  }
  if (body.enable_thinking !== undefined) kwargs.enable_thinking = body.enable_thinking;
  return kwargs;
}
