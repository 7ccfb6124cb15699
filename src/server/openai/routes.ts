/**
 * The OpenAI routes, each with and without `/v1`. A handler only connects the parts: body → internal form → service →
 * events → wire.
 */
import { Elysia } from "elysia";
import { type RequestError, toRequestError } from "../errors.ts";
import { ChoiceCollector, type ChoiceResult } from "../generation/events.ts";
import type { GenerationService, RunningGeneration } from "../generation/service.ts";
import { readJsonObject } from "../http/body.ts";
import { commentFrame, dataFrame, SSE_HEADERS } from "../http/sse.ts";
import type { ServerOptions } from "../options.ts";
import { type AnswerContext, answerContext } from "./answer.ts";
import { ChatChunks, chatAnswer } from "./chat-answer.ts";
import { chatBodySchema, chatRequest } from "./chat-request.ts";
import { CompletionChunks, completionAnswer } from "./completion-answer.ts";
import { completionBodySchema, completionRequest } from "./completion-request.ts";
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
  const { service, options, onError } = parts;
  const chatBody = jsonParser(bodyChecker(chatBodySchema), options);
  const completionBody = jsonParser(bodyChecker(completionBodySchema), options);
  const detail = { tags: ["OpenAI"], hide: prefix === "" };
  const streamOptions = { keepAliveMs: options.keepAliveMs, onError };
  return new Elysia({ prefix })
    .post(
      "/chat/completions",
      async ({ body, request, server, set }) => {
        // Prompts and answers take longer than any idle limit; keep-alives and the client's socket decide instead.
        server?.timeout(request, 0);
        const { generation, delivery } = chatRequest(body, priorityOf(request));
        const running = await service.begin(generation, request.signal);
        const context = answerContext("chatcmpl", running.job, delivery, running.text);
        if (!delivery.stream) return chatAnswer(context, await finished(running));
        Object.assign(set.headers, SSE_HEADERS);
        return streamFrames(running, chatFrames(context), streamOptions);
      },
      { body: chatBodySchema, parse: chatBody, detail: { ...detail, summary: "Chat completion" } },
    )
    .post(
      "/completions",
      async ({ body, request, server, set }) => {
        server?.timeout(request, 0);
        const { generation, delivery } = completionRequest(body, priorityOf(request));
        const running = await service.begin(generation, request.signal);
        const context = answerContext("cmpl", running.job, delivery, running.text);
        if (!delivery.stream) return completionAnswer(context, await finished(running));
        Object.assign(set.headers, SSE_HEADERS);
        return streamFrames(running, completionFrames(context), streamOptions);
      },
      { body: completionBodySchema, parse: completionBody, detail: { ...detail, summary: "Text completion" } },
    );
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
