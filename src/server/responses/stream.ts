/**
 * A streamed response: for each item its events in the order of http-openai.md §6, then the whole Response, which holds
 * the very items that were streamed. At most one item is open; another kind of piece closes it.
 */
import { type Static, type TProperties, Type as t } from "@sinclair/typebox";
import type { FrameSource } from "../dialect/stream.ts";
import type { RequestError } from "../errors.ts";
import type { ChoiceEvent, ReadCall } from "../generation/events.ts";
import { commentFrame, eventFrame, type SseFrame } from "../http/sse.ts";
import { count } from "../openapi/schemas.ts";
import {
  type EndedChoice,
  failedBody,
  finishedBody,
  type Output,
  openBody,
  type ResponseContext,
  responseSchema,
} from "./body.ts";
import {
  callItem,
  endStatus,
  type Item,
  type ItemStatus,
  itemSchema,
  messageItem,
  newCallItem,
  newItemId,
  reasoningItem,
  summaryPart,
  summaryPartSchema,
  textPart,
  textPartSchema,
} from "./output.ts";

function event<const N extends string, P extends TProperties>(type: N, fields: P) {
  return t.Object({ type: t.Literal(type), sequence_number: count, ...fields });
}

const item = { output_index: count, item: itemSchema };
const place = { item_id: t.String(), output_index: count };
const inText = { ...place, content_index: count };
const inSummary = { ...place, summary_index: count };
const noLogprobs = t.Array(t.Unknown(), { maxItems: 0 });

/** Each object of a stream; the name of its event is its type. */
export const responseEventSchema = t.Union(
  [
    event("response.created", { response: responseSchema }),
    event("response.in_progress", { response: responseSchema }),
    event("response.output_item.added", item),
    event("response.content_part.added", { ...inText, part: textPartSchema }),
    event("response.output_text.delta", { ...inText, delta: t.String(), logprobs: noLogprobs }),
    event("response.output_text.done", { ...inText, text: t.String(), logprobs: noLogprobs }),
    event("response.content_part.done", { ...inText, part: textPartSchema }),
    event("response.reasoning_summary_part.added", { ...inSummary, part: summaryPartSchema }),
    event("response.reasoning_summary_text.delta", { ...inSummary, delta: t.String() }),
    event("response.reasoning_summary_text.done", { ...inSummary, text: t.String() }),
    event("response.reasoning_summary_part.done", { ...inSummary, part: summaryPartSchema }),
    event("response.function_call_arguments.delta", { ...place, delta: t.String() }),
    event("response.function_call_arguments.done", { ...place, name: t.String(), arguments: t.String() }),
    event("response.output_item.done", item),
    event("response.completed", { response: responseSchema }),
    event("response.incomplete", { response: responseSchema }),
    event("response.failed", { response: responseSchema }),
  ],
  { $id: "ResponseEvent" },
);

type ResponseEvent = Static<typeof responseEventSchema>;
type Fields<E extends ResponseEvent["type"]> = Omit<Extract<ResponseEvent, { type: E }>, "type" | "sequence_number">;

interface OpenItem {
  readonly type: "reasoning" | "text";
  readonly id: string;
  text: string;
}

export class ResponseStream implements FrameSource {
  private sequence = 0;
  private readonly done: Item[] = [];
  private text = "";
  private current: OpenItem | null = null;
  private ended: EndedChoice | null = null;

  constructor(private readonly context: ResponseContext) {}

  open(): SseFrame[] {
    const response = openBody(this.context);
    return [this.frame("response.created", { response }), this.frame("response.in_progress", { response })];
  }

  push(event: ChoiceEvent): SseFrame[] {
    switch (event.type) {
      case "reasoning":
      case "text":
        return [...this.ensure(event.type), ...this.delta(event.text)];
      case "call":
        return [...this.closeItem("completed"), ...this.call(event.call)];
      case "end":
        this.ended = event;
        return this.closeItem(endStatus(event.reason, true));
    }
  }

  keepAlive(): SseFrame {
    return commentFrame("keepalive");
  }

  close(): SseFrame[] {
    if (this.ended === null) throw new Error("a stream ended before its answer");
    const response = finishedBody(this.context, this.output, this.ended);
    // It came to its end: of the two that are left, one.
    return [this.frame(response.status === "completed" ? "response.completed" : "response.incomplete", { response })];
  }

  fail(error: RequestError): SseFrame {
    return this.frame("response.failed", { response: failedBody(this.context, this.output, error) });
  }

  private get output(): Output {
    return { items: this.done, text: this.text };
  }

  private get summarized(): boolean {
    return this.context.echo.summary !== null;
  }

  private ensure(type: OpenItem["type"]): SseFrame[] {
    if (this.current?.type === type) return [];
    const closed = this.closeItem("completed");
    if (type === "text") {
      const id = newItemId.message();
      this.current = { type, id, text: "" };
      const item: Item = { type: "message", id, status: "in_progress", role: "assistant", content: [] };
      const part = { ...this.place(id), content_index: 0, part: textPart("") };
      return [...closed, this.added(item), this.frame("response.content_part.added", part)];
    }
    const id = newItemId.reasoning();
    this.current = { type, id, text: "" };
    const opened = [...closed, this.added({ type, id, summary: [], content: [] })];
    if (!this.summarized) return opened;
    const part = { ...this.place(id), summary_index: 0, part: summaryPart("") };
    return [...opened, this.frame("response.reasoning_summary_part.added", part)];
  }

  private delta(text: string): SseFrame[] {
    const item = this.current;
    if (item === null) return [];
    item.text += text;
    const place = this.place(item.id);
    if (item.type === "text") {
      this.text += text;
      return [this.frame("response.output_text.delta", { ...place, content_index: 0, delta: text, logprobs: [] })];
    }
    if (!this.summarized) return [];
    return [this.frame("response.reasoning_summary_text.delta", { ...place, summary_index: 0, delta: text })];
  }

  private closeItem(status: ItemStatus): SseFrame[] {
    const item = this.current;
    if (item === null) return [];
    this.current = null;
    const place = this.place(item.id);
    if (item.type === "text") {
      const at = { ...place, content_index: 0 };
      return [
        this.frame("response.output_text.done", { ...at, text: item.text, logprobs: [] }),
        this.frame("response.content_part.done", { ...at, part: textPart(item.text) }),
        this.finished(messageItem(item.id, item.text, status)),
      ];
    }
    const whole = reasoningItem(item.id, item.text, this.summarized);
    if (!this.summarized) return [this.finished(whole)];
    const at = { ...place, summary_index: 0 };
    const text = item.text.trim();
    return [
      this.frame("response.reasoning_summary_text.done", { ...at, text }),
      this.frame("response.reasoning_summary_part.done", { ...at, part: summaryPart(text) }),
      this.finished(whole),
    ];
  }

  private call(read: ReadCall): SseFrame[] {
    const call = newCallItem(read, this.context.echo);
    const { name, arguments: text } = call;
    const place = this.place(call.id);
    return [
      this.added(callItem(call, "in_progress")),
      this.frame("response.function_call_arguments.delta", { ...place, delta: text }),
      this.frame("response.function_call_arguments.done", { ...place, name, arguments: text }),
      this.finished(callItem(call, "completed")),
    ];
  }

  private added(item: Item): SseFrame {
    return this.frame("response.output_item.added", { output_index: this.done.length, item });
  }

  private finished(item: Item): SseFrame {
    const frame = this.frame("response.output_item.done", { output_index: this.done.length, item });
    this.done.push(item);
    return frame;
  }

  private place(itemId: string) {
    return { item_id: itemId, output_index: this.done.length };
  }

  private frame<E extends ResponseEvent["type"]>(type: E, fields: Fields<E>): SseFrame {
    const frame = eventFrame(type, { type, sequence_number: this.sequence, ...fields });
    this.sequence += 1;
    return frame;
  }
}
