/**
 * Chat completions on the wire, unstreamed and streamed, from the same events (http-openai.md §3, §4). Pure: events
 * in, objects out; the caller frames and sends them.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import { callId } from "../dialect/fresh-id.ts";
import type { ChoiceEvent, ChoiceResult, ReadCall } from "../generation/events.ts";
import {
  choiceReport,
  type FinishedChoice,
  referenceSchema,
  reportBlock,
  reportSchema,
  usageOf,
} from "../generation/report.ts";
import { count, orNull } from "../openapi/schemas.ts";
import {
  type AnswerContext,
  finishReason,
  finishSchema,
  head,
  headFields,
  spansOf,
  spansSchema,
  tokenIds,
  usageBody,
  usageSchema,
} from "./answer.ts";
import { errorEventSchema } from "./envelope.ts";
import { chatLogprobs, chatLogprobsSchema } from "./logprobs.ts";

const callFields = {
  id: t.String(),
  type: t.Literal("function"),
  function: t.Object({ name: t.String(), arguments: t.String({ description: "JSON text of an object." }) }),
};

const messageSchema = t.Object({
  role: t.Literal("assistant"),
  content: orNull(t.String()),
  refusal: t.Null(),
  reasoning_content: t.Optional(t.String()),
  tool_calls: t.Optional(t.Array(t.Object(callFields))),
});

export const chatCompletionSchema = t.Object(
  {
    ...headFields(t.Literal("chat.completion")),
    choices: t.Array(
      t.Object({
        index: count,
        message: messageSchema,
        logprobs: orNull(chatLogprobsSchema),
        finish_reason: finishSchema,
        token_ids: t.Optional(tokenIds),
      }),
    ),
    usage: usageSchema,
    prompt_token_ids: t.Optional(tokenIds),
    x_mlx_dspark: reportSchema,
  },
  { $id: "ChatCompletion" },
);

const deltaSchema = t.Object({
  role: t.Optional(t.Literal("assistant")),
  content: t.Optional(t.String()),
  reasoning_content: t.Optional(t.String()),
  tool_calls: t.Optional(t.Array(t.Object({ index: count, ...callFields }))),
});

const chunkChoiceSchema = t.Object({
  index: count,
  delta: deltaSchema,
  logprobs: orNull(chatLogprobsSchema),
  finish_reason: orNull(finishSchema),
  token_ids: t.Optional(tokenIds),
});

export const chatChunkSchema = t.Object(
  {
    ...headFields(t.Literal("chat.completion.chunk")),
    choices: t.Array(chunkChoiceSchema),
    usage: t.Optional(orNull(usageSchema)),
    prompt_token_ids: t.Optional(tokenIds),
    x_mlx_dspark: t.Optional(t.Union([reportSchema, referenceSchema, spansSchema])),
  },
  { $id: "ChatCompletionChunk" },
);

/** Each object of a stream, whose last frame is `[DONE]`. */
export const chatEventSchema = t.Union([chatChunkSchema, errorEventSchema]);

type ChatChunk = Static<typeof chatChunkSchema>;
type ChunkChoice = Static<typeof chunkChoiceSchema>;

/** The whole answer. */
export function chatAnswer(
  context: AnswerContext,
  results: readonly ChoiceResult[],
): Static<typeof chatCompletionSchema> {
  const { job, delivery, text } = context;
  const usage = usageOf(job, results);
  return {
    ...head(
      context,
      "chat.completion",
      results.map((result) => ({
        index: result.choice,
        message: message(result),
        logprobs: delivery.logprobs ? chatLogprobs(result.tokens, text) : null,
        finish_reason: finishReason(result.reason),
        ...(delivery.returnTokenIds && { token_ids: result.tokens.map((token) => token.id) }),
      })),
    ),
    usage: usageBody(usage),
    ...(delivery.returnTokenIds && { prompt_token_ids: Array.from(job.prompts[0] ?? []) }),
    x_mlx_dspark: reportBlock(job.id, usage, results),
  };
}

/** `content` is null only where calls stand in its place; what is empty is left out. */
function message({ text, reasoning, calls }: ChoiceResult): Static<typeof messageSchema> {
  return {
    role: "assistant",
    content: text === "" && calls.length > 0 ? null : text,
    refusal: null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls.map(callBody) }),
  };
}

function callBody(call: ReadCall) {
  const { name, arguments: text } = call;
  return { id: callId("call_"), type: "function" as const, function: { name, arguments: text } };
}

/** Chunks of a streamed answer, in the order of http-openai.md §4. */
export class ChatChunks {
  private readonly finished: FinishedChoice[] = [];

  constructor(private readonly context: AnswerContext) {}

  /** One role chunk per choice; the first also carries the request's id and, if asked for, the prompt's ids. */
  open(): ChatChunk[] {
    const { job, delivery } = this.context;
    return Array.from({ length: job.choiceCount }, (_, index) =>
      this.chunk([{ index, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }], {
        ...(index === 0 && { x_mlx_dspark: { req: job.id } }),
        ...(index === 0 && delivery.returnTokenIds && { prompt_token_ids: Array.from(job.prompts[0] ?? []) }),
      }),
    );
  }

  push(event: ChoiceEvent): ChatChunk[] {
    switch (event.type) {
      case "reasoning":
        return [this.text(event, { reasoning_content: event.text })];
      case "text":
        return [this.text(event, { content: event.text })];
      case "call": {
        const call = { index: event.call.index, ...callBody(event.call) };
        return [this.chunk([this.choice(event, { tool_calls: [call] }, null)])];
      }
      case "end": {
        this.finished.push(event);
        const choice = this.choice(event, {}, finishReason(event.reason));
        return [this.chunk([choice], { x_mlx_dspark: choiceReport(this.context.job, event) })];
      }
    }
  }

  /** A real chunk, not a comment: clients' idle timers look at chunks (http-openai.md §1). */
  keepAlive(): ChatChunk {
    return this.chunk([{ index: 0, delta: {}, logprobs: null, finish_reason: null }]);
  }

  close(): ChatChunk[] {
    if (!this.context.delivery.includeUsage) return [];
    const usage = usageBody(usageOf(this.context.job, this.finished));
    return [{ ...head(this.context, "chat.completion.chunk", []), usage }];
  }

  private text(event: ChoiceEvent, delta: ChunkChoice["delta"]): ChatChunk {
    const spans = spansOf(event);
    return this.chunk([this.choice(event, delta, null)], { ...(spans !== null && { x_mlx_dspark: spans }) });
  }

  private choice(event: ChoiceEvent, delta: ChunkChoice["delta"], finish: ChunkChoice["finish_reason"]): ChunkChoice {
    const { delivery, text } = this.context;
    const shown = event.tokens.some((token) => token.visible);
    return {
      index: event.choice,
      delta,
      logprobs: delivery.logprobs && shown ? chatLogprobs(event.tokens, text) : null,
      finish_reason: finish,
      ...(delivery.returnTokenIds && { token_ids: event.tokens.map((token) => token.id) }),
    };
  }

  private chunk(choices: ChunkChoice[], extra: Pick<ChatChunk, "prompt_token_ids" | "x_mlx_dspark"> = {}): ChatChunk {
    // Filled in place: each token makes one.
    const chunk: ChatChunk = head(this.context, "chat.completion.chunk", choices);
    if (this.context.delivery.includeUsage) chunk.usage = null;
    return Object.assign(chunk, extra);
  }
}
