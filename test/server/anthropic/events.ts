/** A Messages stream, parsed: the events, and the message that a client puts together from them. */
import { at } from "../harness.ts";

export interface StreamEvent {
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Throws unless the text is named events with one line of data each, and comments. */
export function streamEvents(text: string): StreamEvent[] {
  return text
    .split("\n\n")
    .slice(0, -1)
    .filter((frame) => !frame.startsWith(": "))
    .map((frame) => {
      const [, event, data] = /^event: (\w+)\ndata: (.*)$/.exec(frame) ?? [];
      if (event === undefined || data === undefined) throw new Error(`not a named event: ${frame}`);
      return { event, data: JSON.parse(data) };
    });
}

/** Blocks, stop reason and usage as a client accumulates them; throws when the order is not that of the protocol. */
export function accumulated(events: readonly StreamEvent[]) {
  const names = events.map(({ event, data }) => {
    if (data.type !== event) throw new Error(`${event} is called ${data.type}`);
    return event;
  });
  const order = names.filter((name) => name !== "ping").join(" ");
  const block = "content_block_start( content_block_delta)* content_block_stop ";
  if (!new RegExp(`^message_start (${block})+message_delta message_stop$`).test(order)) throw new Error(order);
  if (names[0] !== "message_start" || names[1] !== "ping") throw new Error("it must begin with its start and a ping");
  const content: Record<string, unknown>[] = [];
  for (const { event, data } of events) {
    if (event === "content_block_start") {
      if (data.index !== content.length) throw new Error(`block ${content.length} has index ${data.index}`);
      content.push({ ...Object(data.content_block), json: "", signed: false });
    }
    const open = content.at(-1);
    if (event === "content_block_delta" && open !== undefined) {
      if (data.index !== content.length - 1) throw new Error("a delta of a block that is not open");
      applyDelta(open, at(data, "delta"));
    }
    if (event === "content_block_stop" && open?.type === "thinking" && open.signed !== true)
      throw new Error("unsigned");
  }
  const last = events.findLast(({ event }) => event === "message_delta")?.data;
  return {
    content: content.map(({ json, signed: _signed, ...open }) =>
      open.type === "tool_use" ? { ...open, input: JSON.parse(String(json)) } : open,
    ),
    ...Object(at(last, "delta")),
    usage: at(last, "usage"),
  };
}

/** Each kind of block takes its own kinds of delta, none of them empty. */
function applyDelta(open: Record<string, unknown>, delta: unknown): void {
  const type = at(delta, "type");
  const take = (key: string, from: string, into: string) => {
    const text = at(delta, from);
    if (open.type !== key || typeof text !== "string" || text === "") throw new Error(`${type} in a ${open.type}`);
    open[into] = String(open[into]) + text;
  };
  if (open.signed === true) throw new Error("a delta behind the signature");
  if (type === "text_delta") take("text", "text", "text");
  else if (type === "thinking_delta") take("thinking", "thinking", "thinking");
  else if (type === "input_json_delta") take("tool_use", "partial_json", "json");
  else if (type === "signature_delta") {
    take("thinking", "signature", "signature");
    open.signed = true;
  } else throw new Error(`unknown delta ${type}`);
}
