/**
 * The OpenAI routes, each with and without `/v1`. A handler only connects the parts: body → internal form → service →
 * events → wire.
 */
import { Elysia } from "elysia";
import { type RequestError, toRequestError } from "../errors.ts";
import { ChoiceCollector, type ChoiceResult } from "../generation/events.ts";
import type { GenerationRequest } from "../generation/request.ts";
import type { GenerationService, RunningGeneration } from "../generation/service.ts";
import { readJsonObject } from "../http/body.ts";
import { commentFrame, dataFrame, SSE_HEADERS } from "../http/sse.ts";
import type { ServerOptions } from "../options.ts";
import { type AnswerContext, answerContext } from "./answer.ts";
import { ChatChunks, chatAnswer } from "./chat-answer.ts";
import { chatBodySchema, chatRequest } from "./chat-request.ts";
import { CompletionChunks, completionAnswer } from "./completion-answer.ts";
import { completionBodySchema, completionRequest } from "./completion-request.ts";
import type { Delivery } from "./fields.ts";
import { dataFrames, type FrameSource, streamFrames } from "./stream.ts";
import { bodyChecker } from "./validation.ts";

export interface OpenAiParts {
  readonly service: GenerationService;
  readonly options: ServerOptions;
  /** Told of errors whose cause the client does not see. */
  readonly onError: (error: RequestError) => void;
}

/** Routes under `prefix` (`/v1` or nothing). */
export function openAiRoutes(parts: OpenAiParts, prefix: "" | "/v1") {
  const { options } = parts;
  const detail = { tags: ["OpenAI"], hide: prefix === "" };
  return new Elysia({ prefix })
    .post(
      "/chat/completions",
      ({ body, request, server, set }) =>
        respond(chatRequest(body, priorityOf(request)), CHAT, { request, server, set }, parts),
      {
        body: chatBodySchema,
        parse: jsonParser(bodyChecker(chatBodySchema), options),
        detail: { ...detail, summary: "Chat completion" },
      },
    )
    .post(
      "/completions",
      ({ body, request, server, set }) =>
        respond(completionRequest(body, priorityOf(request)), COMPLETION, { request, server, set }, parts),
      {
        body: completionBodySchema,
        parse: jsonParser(bodyChecker(completionBodySchema), options),
        detail: { ...detail, summary: "Text completion" },
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

/** What a handler gets of its request. */
interface Exchange {
  readonly request: Request;
  readonly server: { timeout(request: Request, seconds: number): void } | null;
  readonly set: { readonly headers: Record<string, string | number> };
}

interface WireRequest {
  readonly generation: GenerationRequest;
  readonly delivery: Delivery;
}

async function respond({ generation, delivery }: WireRequest, wire: Wire, exchange: Exchange, parts: OpenAiParts) {
  const { request, server, set } = exchange;
  // Prompts and answers take longer than any idle limit; keep-alives and the client's socket decide instead.
  server?.timeout(request, 0);
  const running = await parts.service.begin(generation, request.signal);
  const context = answerContext(wire.idPrefix, running.job, delivery, running.text);
  if (!delivery.stream) return wire.whole(context, await finished(running));
  Object.assign(set.headers, SSE_HEADERS);
  const { options, onError } = parts;
  return streamFrames(running, wire.frames(context), { keepAliveMs: options.keepAliveMs, onError });
}

/** Reads and checks a body; the second name is never reached and only tells the OpenAPI page that it is JSON. */
function jsonParser(check: (body: Record<string, unknown>) => unknown, options: ServerOptions) {
  const read = async ({ request }: { request: Request }) => check(await readJsonObject(request, options.maxBodyBytes));
  const parsers: [typeof read, "json"] = [read, "json"];
  return parsers;
}

async function finished(generation: RunningGeneration): Promise<ChoiceResult[]> {
  using running = generation;
  const collector = new ChoiceCollector();
  try {
    for await (const event of running.events) collector.push(event);
  } catch (error) {
    throw toRequestError(error);
  }
  return collector.results();
}

function chatFrames(context: AnswerContext): FrameSource {
  const chunks = new ChatChunks(context);
  return {
    open: () => dataFrames(chunks.open()),
    push: (event) => dataFrames(chunks.push(event)),
    keepAlive: () => dataFrame(chunks.keepAlive()),
    close: () => dataFrames(chunks.close()),
  };
}

function completionFrames(context: AnswerContext): FrameSource {
  const chunks = new CompletionChunks(context);
  return {
    // There is no role chunk here; a comment sends the headers before the prompt is read.
    open: () => [commentFrame("stream")],
    push: (event) => dataFrames(chunks.push(event)),
    keepAlive: () => commentFrame("keepalive"),
    close: () => dataFrames(chunks.close()),
  };
}

/** `x-priority: low` puts a request into the background class (batching.md B11). */
function priorityOf(request: Request): 0 | 1 {
  return request.headers.get("x-priority")?.trim().toLowerCase() === "low" ? 1 : 0;
}
