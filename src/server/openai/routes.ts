/**
 * The OpenAI routes, each with and without `/v1`. A handler only connects the parts: body → internal form → service →
 * events → wire.
 */
import { Elysia } from "elysia";
import {
  type DialectCall,
  type DialectParts,
  generationHeaders,
  jsonParser,
  priorityOf,
  respond,
} from "../dialect/respond.ts";
import type { FrameSource } from "../dialect/stream.ts";
import type { ChoiceEvent, ChoiceResult } from "../generation/events.ts";
import type { GenerationRequest } from "../generation/request.ts";
import { commentFrame, DONE_FRAME, dataFrame, dataFrames, FrameTemplate, type SseFrame } from "../http/sse.ts";
import { operation } from "../openapi/operation.ts";
import { type AnswerContext, answerContext } from "./answer.ts";
import { ChatChunks, chatAnswer, chatCompletionSchema, chatEventSchema } from "./chat-answer.ts";
import { chatBodySchema, chatRequest } from "./chat-request.ts";
import { CompletionChunks, completionAnswer, completionEventSchema, completionSchema } from "./completion-answer.ts";
import { completionBodySchema, completionRequest } from "./completion-request.ts";
import { errorFrame } from "./envelope.ts";
import type { Delivery } from "./fields.ts";

/** Routes under `prefix` (`/v1` or nothing). */
export function openAiRoutes(parts: DialectParts, prefix: "" | "/v1") {
  const { options } = parts;
  const described = { tag: "OpenAI", hide: prefix === "", headers: generationHeaders } as const;
  return new Elysia({ prefix })
    .post(
      "/chat/completions",
      ({ body, request, server, set }) =>
        respond(dialectCall(chatRequest(body, priorityOf(request)), CHAT), { request, server, set }, parts),
      {
        body: chatBodySchema,
        parse: jsonParser(chatBodySchema, options),
        detail: operation({
          ...described,
          ...{ summary: "Chat completion", json: chatCompletionSchema, events: chatEventSchema },
        }),
      },
    )
    .post(
      "/completions",
      ({ body, request, server, set }) =>
        respond(dialectCall(completionRequest(body, priorityOf(request)), COMPLETION), { request, server, set }, parts),
      {
        body: completionBodySchema,
        parse: jsonParser(completionBodySchema, options),
        detail: operation({
          ...described,
          ...{ summary: "Text completion", json: completionSchema, events: completionEventSchema },
        }),
      },
    );
}

/** One of the two wire forms. */
interface Wire {
  readonly idPrefix: string;
  whole(context: AnswerContext, results: readonly ChoiceResult[]): object;
  frames(context: AnswerContext): FrameSource;
}

const CHAT: Wire = { idPrefix: "chatcmpl", whole: chatAnswer, frames: chatFrames };
const COMPLETION: Wire = { idPrefix: "cmpl", whole: completionAnswer, frames: completionFrames };

interface WireRequest {
  readonly generation: GenerationRequest;
  readonly delivery: Delivery;
}

function dialectCall({ generation, delivery }: WireRequest, wire: Wire): DialectCall {
  return {
    generation,
    stream: delivery.stream,
    wire: ({ job, text }) => {
      const context = answerContext(wire.idPrefix, job, delivery, text);
      return { whole: (results) => wire.whole(context, results), frames: () => wire.frames(context) };
    },
  };
}

function chatFrames(context: AnswerContext): FrameSource {
  const chunks = new ChatChunks(context);
  const { logprobs, returnTokenIds } = context.delivery;
  // By choice; chunks that carry nothing but text differ in nothing else.
  const templates = { text: new Map<number, FrameTemplate>(), reasoning: new Map<number, FrameTemplate>() };
  const push = (event: ChoiceEvent): readonly SseFrame[] => {
    const { type, choice } = event;
    const textOnly = (type === "text" || type === "reasoning") && event.spans === undefined;
    if (!textOnly || logprobs || returnTokenIds) return dataFrames(chunks.push(event));
    return [templateOf(type, choice).fill(event.text)];
  };
  const templateOf = (type: "text" | "reasoning", choice: number): FrameTemplate => {
    const known = templates[type].get(choice);
    if (known !== undefined) return known;
    const made = new FrameTemplate((text) => chunks.push({ type, choice, text, tokens: [] })[0] ?? {});
    templates[type].set(choice, made);
    return made;
  };
  return {
    open: () => {
      // Before the prompt is read: the first token need not wait for it.
      templateOf("text", 0);
      return dataFrames(chunks.open());
    },
    push,
    keepAlive: () => dataFrame(chunks.keepAlive()),
    close: () => [...dataFrames(chunks.close()), DONE_FRAME],
    fail: errorFrame,
  };
}

function completionFrames(context: AnswerContext): FrameSource {
  const chunks = new CompletionChunks(context);
  return {
    // There is no role chunk here; a comment sends the headers before the prompt is read.
    open: () => [commentFrame("stream")],
    push: (event) => dataFrames(chunks.push(event)),
    keepAlive: () => commentFrame("keepalive"),
    close: () => [...dataFrames(chunks.close()), DONE_FRAME],
    fail: errorFrame,
  };
}
