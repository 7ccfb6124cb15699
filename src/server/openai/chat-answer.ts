/**
 * Chat completions on the wire, unstreamed and streamed, from the same events (http-openai.md §3, §4). Pure: events
 * in, objects out; the caller frames and sends them.
 */
import { callId } from "../dialect/fresh-id.ts";
import type { ChoiceEvent, ChoiceResult, ReadCall } from "../generation/events.ts";
import { choiceReport, type FinishedChoice, reportBlock, usageOf } from "../generation/report.ts";
import { type AnswerContext, finishReason, head, spansOf, usageBody } from "./answer.ts";
import { chatLogprobs } from "./logprobs.ts";

/** The whole answer. */
export function chatAnswer(context: AnswerContext, results: readonly ChoiceResult[]) {
  const { job, delivery, text } = context;
  const usage = usageOf(job, results);
  return {
    ...head(context, "chat.completion"),
    choices: results.map((result) => ({
      index: result.choice,
      message: message(result),
      logprobs: delivery.logprobs ? chatLogprobs(result.tokens, text) : null,
      finish_reason: finishReason(result.reason),
      ...(delivery.returnTokenIds && { token_ids: result.tokens.map((token) => token.id) }),
    })),
    usage: usageBody(usage),
    ...(delivery.returnTokenIds && { prompt_token_ids: Array.from(job.prompts[0] ?? []) }),
    x_mlx_dspark: reportBlock(job.id, usage, results),
  };
}

/** `content` is null only where calls stand in its place; what is empty is left out. */
function message({ text, reasoning, calls }: ChoiceResult) {
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
  return { id: callId("call_"), type: "function", function: { name, arguments: text } };
}

/** Chunks of a streamed answer, in the order of http-openai.md §4. */
export class ChatChunks {
  private readonly finished: FinishedChoice[] = [];

  constructor(private readonly context: AnswerContext) {}

  /** One role chunk per choice; the first also carries the request's id and, if asked for, the prompt's ids. */
  open(): object[] {
    const { job, delivery } = this.context;
    return Array.from({ length: job.choiceCount }, (_, index) =>
      this.chunk([{ index, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }], {
        ...(index === 0 && { x_mlx_dspark: { req: job.id } }),
        ...(index === 0 && delivery.returnTokenIds && { prompt_token_ids: Array.from(job.prompts[0] ?? []) }),
      }),
    );
  }

  push(event: ChoiceEvent): object[] {
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
  keepAlive(): object {
    return this.chunk([{ index: 0, delta: {}, logprobs: null, finish_reason: null }]);
  }

  close(): object[] {
    if (!this.context.delivery.includeUsage) return [];
    const usage = usageBody(usageOf(this.context.job, this.finished));
    return [{ ...head(this.context, "chat.completion.chunk"), choices: [], usage }];
  }

  private text(event: ChoiceEvent, delta: object): object {
    const spans = spansOf(event);
    return this.chunk([this.choice(event, delta, null)], { ...(spans !== null && { x_mlx_dspark: spans }) });
  }

  private choice(event: ChoiceEvent, delta: object, finish: ReturnType<typeof finishReason> | null) {
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

  private chunk(choices: readonly object[], extra: object = {}): object {
    // Filled in place: each token makes one.
    const chunk: Record<string, unknown> = head(this.context, "chat.completion.chunk");
    chunk.choices = choices;
    if (this.context.delivery.includeUsage) chunk.usage = null;
    return Object.assign(chunk, extra);
  }
}
