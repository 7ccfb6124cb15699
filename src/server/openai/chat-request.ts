/** `POST /v1/chat/completions`: the body's schema and its way into the internal form (http-openai.md §2). */
import { type Static, Type as t } from "@sinclair/typebox";
import { thinkingOf } from "../dialect/thinking.ts";
import { toolSetup } from "../dialect/tools.ts";
import { clip } from "../dialect/words.ts";
import { invalidRequest } from "../errors.ts";
import type { GenerationRequest } from "../generation/request.ts";
import { chatMessages, messageSchema } from "./chat-messages.ts";
import { type Delivery, sharedFields, sharedRequest, unsupported } from "./fields.ts";
import { callableTool, chatToolSchema, toolChoice, toolChoiceSchema } from "./tool-choice.ts";

export const chatBodySchema = t.Object(
  {
    ...sharedFields,
    messages: t.Array(messageSchema, { minItems: 1, "x-must-be": "a non-empty list" }),
    max_completion_tokens: t.Optional(t.Integer({ minimum: 1, description: "Wins over max_tokens." })),
    logprobs: t.Optional(t.Boolean()),
    top_logprobs: t.Optional(t.Integer({ minimum: 0, maximum: 20 })),
    tools: t.Optional(t.Array(chatToolSchema)),
    tool_choice: t.Optional(toolChoiceSchema),
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
  if (body.top_logprobs !== undefined && body.logprobs !== true) {
    throw invalidRequest("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  const audio = body.modalities?.find((modality) => modality !== "text");
  if (audio !== undefined) throw unsupported("modalities", `modality '${clip(audio)}'`);
  const { rendered, policy } = toolSetup({
    tools: (body.tools ?? []).map((tool) => callableTool(tool.function)),
    choice: toolChoice(body.tool_choice),
    parallel: body.parallel_tool_calls ?? true,
  });
  const { reasoning, kwargs } = thinkingOf({
    enableThinking: body.enable_thinking,
    effort: body.reasoning_effort,
    effortParam: "reasoning_effort",
    kwargs: body.chat_template_kwargs,
  });
  const messages = chatMessages(body.messages);
  return {
    generation: {
      ...sharedRequest(body),
      prompt: { kind: "chat", conversation: { messages, kwargs, ...(rendered.length > 0 && { tools: rendered }) } },
      toolPolicy: policy,
      reasoning,
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
