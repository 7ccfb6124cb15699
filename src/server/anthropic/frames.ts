/** A Messages answer as a stream of named events, in the exact order of http-anthropic.md §4. */
import { type Static, type TProperties, Type as t } from "@sinclair/typebox";
import type { FrameSource } from "../dialect/stream.ts";
import type { ChoiceEvent } from "../generation/events.ts";
import { choiceReport, reportSchema, usageOf } from "../generation/report.ts";
import { eventFrame, type SseFrame } from "../http/sse.ts";
import { count } from "../openapi/schemas.ts";
import {
  type AnswerContext,
  blockSchema,
  inputFields,
  inputUsage,
  messageHead,
  SIGNATURE,
  startedMessageSchema,
  stopFields,
  stopOf,
} from "./answer.ts";
import { type BlockKind, type BlockStep, BlockStream, type ToolUse } from "./block-stream.ts";
import { errorEventSchema, errorFrame } from "./envelope.ts";

function event<const N extends string, P extends TProperties>(type: N, fields: P) {
  return t.Object({ type: t.Literal(type), ...fields });
}

const deltaSchema = t.Union([
  event("text_delta", { text: t.String({ minLength: 1 }) }),
  event("thinking_delta", { thinking: t.String({ minLength: 1 }) }),
  event("signature_delta", { signature: t.String() }),
  event("input_json_delta", { partial_json: t.String() }),
]);

const ownEventSchema = t.Union([
  event("message_start", { message: startedMessageSchema }),
  event("ping", {}),
  event("content_block_start", { index: count, content_block: blockSchema }),
  event("content_block_delta", { index: count, delta: deltaSchema }),
  event("content_block_stop", { index: count }),
  event("message_delta", {
    delta: t.Object(stopFields),
    usage: t.Object({ ...inputFields, output_tokens: count }),
    x_mlx_dspark: reportSchema,
  }),
  event("message_stop", {}),
]);

/** Each object of a stream; the name of its event is its type. */
export const messageEventSchema = t.Union([...ownEventSchema.anyOf, errorEventSchema], { $id: "MessageEvent" });

type MessageEvent = Static<typeof ownEventSchema>;
type Fields<E extends MessageEvent["type"]> = Omit<Extract<MessageEvent, { type: E }>, "type">;
type Delta = Static<typeof deltaSchema>;
type Block = Static<typeof blockSchema>;

const PING = typed("ping", {});

export class MessageFrames implements FrameSource {
  private readonly blocks = new BlockStream();
  private hasCalls = false;
  private end: Extract<ChoiceEvent, { type: "end" }> | null = null;

  constructor(private readonly context: AnswerContext) {}

  /** Sent before the prompt is read, when nobody knows yet what of it is cached: `message_delta` tells. */
  open(): SseFrame[] {
    const { job } = this.context;
    const promptTokens = job.prompts.reduce((sum, ids) => sum + ids.length, 0);
    const usage = {
      ...inputUsage({ promptTokens, cachedTokens: 0 }),
      cache_creation_input_tokens: 0,
      output_tokens: 0,
    };
    const ending = { stop_reason: null, stop_sequence: null };
    const message = { ...messageHead(this.context), content: [], ...ending, usage, x_mlx_dspark: { req: job.id } };
    return [typed("message_start", { message }), PING];
  }

  push(event: ChoiceEvent): SseFrame[] {
    switch (event.type) {
      case "reasoning":
        return this.context.delivery.showThinking ? frames(this.blocks.text("thinking", event.text)) : [];
      case "text":
        return frames(this.blocks.text("text", event.text));
      case "call":
        this.hasCalls = true;
        return frames(this.blocks.call(event.call));
      case "end":
        this.end = event;
        return [];
    }
  }

  keepAlive(): SseFrame {
    return PING;
  }

  close(): SseFrame[] {
    const { end } = this;
    if (end === null) throw new Error("an answer without an end");
    const delta = stopOf(this.context, { ...end, hasCalls: this.hasCalls });
    const counts = usageOf(this.context.job, [end]);
    const usage = { ...inputUsage(counts), output_tokens: counts.completionTokens };
    return [
      ...frames(this.blocks.finish()),
      typed("message_delta", { delta, usage, x_mlx_dspark: choiceReport(this.context.job, end) }),
      typed("message_stop", {}),
    ];
  }

  fail = errorFrame;
}

function frames(steps: readonly BlockStep[]): SseFrame[] {
  return steps.flatMap(stepFrames);
}

function stepFrames(step: BlockStep): SseFrame[] {
  const { index, block } = step;
  switch (step.type) {
    case "start":
      return [typed("content_block_start", { index, content_block: emptyBlock(block) })];
    case "delta":
      return [delta(index, textDelta(block, step.text))];
    case "stop": {
      const stop = typed("content_block_stop", { index });
      return block === "thinking" ? [delta(index, { type: "signature_delta", signature: SIGNATURE }), stop] : [stop];
    }
  }
}

function emptyBlock(block: BlockKind | ToolUse): Block {
  if (block === "text") return { type: "text", text: "" };
  if (block === "thinking") return { type: "thinking", thinking: "", signature: "" };
  return { type: "tool_use", ...block, input: {} };
}

function textDelta(block: BlockKind | ToolUse, text: string): Delta {
  if (block === "text") return { type: "text_delta", text };
  if (block === "thinking") return { type: "thinking_delta", thinking: text };
  return { type: "input_json_delta", partial_json: text };
}

function delta(index: number, value: Delta): SseFrame {
  return typed("content_block_delta", { index, delta: value });
}

function typed<E extends MessageEvent["type"]>(type: E, fields: Fields<E>): SseFrame {
  return eventFrame(type, { type, ...fields });
}
