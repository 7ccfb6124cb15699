/** A Messages answer as a stream of named events, in the exact order of http-anthropic.md §4. */
import type { FrameSource } from "../dialect/stream.ts";
import type { ChoiceEvent } from "../generation/events.ts";
import { choiceReport, usageOf } from "../generation/report.ts";
import { eventFrame, type SseFrame } from "../http/sse.ts";
import { type AnswerContext, inputUsage, messageHead, SIGNATURE, stopOf } from "./answer.ts";
import { type BlockKind, type BlockStep, BlockStream, type ToolUse } from "./block-stream.ts";
import { errorFrame } from "./envelope.ts";

const PING = typed("ping");

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
      typed("message_stop"),
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

function emptyBlock(block: BlockKind | ToolUse): object {
  if (block === "text") return { type: "text", text: "" };
  if (block === "thinking") return { type: "thinking", thinking: "", signature: "" };
  return { type: "tool_use", ...block, input: {} };
}

function textDelta(block: BlockKind | ToolUse, text: string): object {
  if (block === "text") return { type: "text_delta", text };
  if (block === "thinking") return { type: "thinking_delta", thinking: text };
  return { type: "input_json_delta", partial_json: text };
}

function delta(index: number, value: object): SseFrame {
  return typed("content_block_delta", { index, delta: value });
}

function typed(type: string, fields: object = {}): SseFrame {
  return eventFrame(type, { type, ...fields });
}
