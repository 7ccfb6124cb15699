/** Frames of a server-sent event stream, in the exact framing of http-openai.md §1. */

export class SseFrame {
  constructor(private readonly text: string) {}
  toSSE(): string {
    return this.text;
  }
}

/** What some clients take for the end of a line, though the standard of event streams does not. */
const LINE_ENDS = /[\u0085\u2028\u2029]/g;

function jsonLine(value: unknown): string {
  const text = JSON.stringify(value);
  if (text.search(LINE_ENDS) < 0) return text;
  return text.replace(LINE_ENDS, (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** `data: <json>`. JSON text has no raw newline, so one line is enough. */
export function dataFrame(value: unknown): SseFrame {
  return new SseFrame(`data: ${jsonLine(value)}\n\n`);
}

/** Nothing that anybody sends. */
const MARK = crypto.randomUUID();
const MARK_JSON = JSON.stringify(MARK);

/** A data frame of which only one string changes: written once, then filled in, since each token makes one. */
export class FrameTemplate {
  private readonly head: string;
  private readonly tail: string;

  /** @param make the object with the string in its place, once */
  constructor(make: (text: string) => object) {
    const [head = "", tail = ""] = dataFrame(make(MARK)).toSSE().split(MARK_JSON);
    this.head = head;
    this.tail = tail;
  }

  fill(text: string): SseFrame {
    return new SseFrame(this.head + jsonLine(text) + this.tail);
  }
}

/** Each object as one data frame. */
export function dataFrames(chunks: readonly object[]): SseFrame[] {
  return chunks.map(dataFrame);
}

/** `event: <type>` and `data: <json>`: some SDKs ignore events without the first line. */
export function eventFrame(type: string, value: unknown): SseFrame {
  return new SseFrame(`event: ${type}\ndata: ${jsonLine(value)}\n\n`);
}

export const DONE_FRAME = new SseFrame("data: [DONE]\n\n");

/** A comment: clients do not see it, but their socket does. */
export function commentFrame(text: string): SseFrame {
  return new SseFrame(`: ${text}\n\n`);
}

export const SSE_HEADERS: Readonly<Record<string, string>> = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
};
