/** Answers of both forms from the same events: blocks in order, one open at a time, and the same content. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type AnswerContext, messageAnswer } from "../../../src/server/anthropic/answer.ts";
import { MessageFrames } from "../../../src/server/anthropic/frames.ts";
import { messagesRequest } from "../../../src/server/anthropic/request.ts";
import type { MessagesBody } from "../../../src/server/anthropic/schema.ts";
import type { ChoiceEndReason, ChoiceEvent } from "../../../src/server/generation/events.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../../src/server/options.ts";
import { at } from "../harness.ts";
import { eventsOf, jobOf, resultsOf, type Said } from "../wire.ts";
import { accumulated, streamEvents } from "./events.ts";

const HI = [{ role: "user", content: "hi" }];

async function contextOf(fields: Partial<MessagesBody> = {}, options = DEFAULT_SERVER_OPTIONS): Promise<AnswerContext> {
  const { generation, delivery } = messagesRequest({ messages: HI, ...fields }, 0, options);
  return { id: "msg_0", job: await jobOf(generation), delivery, options };
}

function streamed(context: AnswerContext, events: readonly ChoiceEvent[]) {
  const frames = new MessageFrames(context);
  const all = [...frames.open(), ...events.flatMap((event) => frames.push(event)), ...frames.close()];
  return streamEvents(all.map((frame) => frame.toSSE()).join(""));
}

/** Both forms; ids are made for each of them. */
function both(context: AnswerContext, said: readonly Said[], reason: ChoiceEndReason = "stop") {
  const events = eventsOf(context.job, said, reason);
  const whole = messageAnswer(context, resultsOf(events));
  return { whole, stream: accumulated(streamed(context, events)) };
}

const withoutIds = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value).replace(/toolu_[a-z0-9]{24}/g, "toolu"));

describe("blocks", () => {
  test("in the order in which they were produced", async () => {
    const { whole, stream } = both(
      await contextOf(),
      [
        { thinks: "Let me " },
        { thinks: "see." },
        { says: "I will " },
        { says: "look." },
        { calls: ["ls", '{"path":"ä"}'] },
        { calls: ["pwd", "{}"] },
        { says: "Done." },
      ],
      "tool_calls",
    );
    const expected = [
      { type: "thinking", thinking: "Let me see.", signature: "mlx-dspark" },
      { type: "text", text: "I will look." },
      { type: "tool_use", id: "toolu", name: "ls", input: { path: "ä" } },
      { type: "tool_use", id: "toolu", name: "pwd", input: {} },
      { type: "text", text: "Done." },
    ];
    expect(withoutIds(whole.content)).toEqual(expected);
    expect(withoutIds(at(stream, "content"))).toEqual(expected);
    expect([whole.stop_reason, whole.stop_sequence]).toEqual(["tool_use", null]);
    const ids = whole.content.map((block) => at(block, "id")).filter((id) => id !== undefined);
    expect(new Set(ids).size).toBe(2);
    expect(String(ids[0])).toMatch(/^toolu_[a-z0-9]{24}$/);
  });

  test("no text before a call: no text block; nothing at all: an empty one without a delta", async () => {
    const context = await contextOf();
    const call = both(context, [{ says: " " }, { says: "\n" }, { calls: ["f", "{}"] }], "tool_calls");
    expect(call.whole.content.map((block) => at(block, "type"))).toEqual(["tool_use"]);
    expect(withoutIds(at(call.stream, "content"))).toEqual(withoutIds(call.whole.content));
    const events = streamed(context, eventsOf(context.job, [], "stop"));
    expect(events.map(({ event }) => event)).toEqual([
      ...["message_start", "ping", "content_block_start", "content_block_stop", "message_delta", "message_stop"],
    ]);
    expect(both(context, []).whole.content).toEqual([{ type: "text", text: "" }]);
  });

  test("white space stays as it came, at both ends of a text too", async () => {
    const { whole, stream } = both(await contextOf(), [{ says: "\n\n" }, { says: " a " }, { says: " \n" }]);
    expect(whole.content).toEqual([{ type: "text", text: "\n\n a  \n" }]);
    expect(at(stream, "content")).toEqual(whole.content);
    expect(both(await contextOf(), [{ says: " \n" }]).whole.content).toEqual([{ type: "text", text: " \n" }]);
  });

  test("disabled thinking is read and not told", async () => {
    const said = [{ thinks: "secret" }, { says: "a" }, { thinks: "more" }, { says: "b" }];
    const { whole, stream } = both(await contextOf({ thinking: { type: "disabled" } }), said);
    expect(whole.content).toEqual([{ type: "text", text: "ab" }]);
    expect(at(stream, "content")).toEqual(whole.content);
  });

  test("numbers of arguments keep their digits, and keys their names", async () => {
    const args = '{"id":123456789012345678901,"f":1.0,"0":"zero","e":1e400,"__proto__":{"a":1}}';
    const { whole } = both(await contextOf(), [{ calls: ["f", args] }], "tool_calls");
    const text = JSON.stringify(whole);
    for (const part of ['"id":123456789012345678901', '"f":1.0', '"0":"zero"', '"e":1e400', '"__proto__":{"a":1}']) {
      expect(text).toContain(part);
    }
  });

  const piece = fc.string({ minLength: 1, unit: fc.constantFrom("a", " ", "\n", "🦁", "é") });
  const said = fc.array(
    fc.oneof(
      piece.map((says): Said => ({ says })),
      piece.map((thinks): Said => ({ thinks })),
      fc.constantFrom<Said>({ calls: ["f", "{}"] }, { calls: ["g", '{"a":[1,"b"]}'] }),
    ),
    { maxLength: 12 },
  );

  test("for any pieces the order is the protocol's and both forms say the same", async () => {
    const contexts = [await contextOf(), await contextOf({ thinking: { type: "disabled" } })];
    fc.assert(
      fc.property(said, fc.constantFrom(...contexts), (pieces, context) => {
        const { whole, stream } = both(context, pieces);
        // Whole thoughts are trimmed; a stream cannot take back what it has sent.
        const trimmed = Object(at(stream, "content")).map((block: Record<string, unknown>) =>
          block.type === "thinking" ? { ...block, thinking: String(block.thinking).trim() } : block,
        );
        expect(withoutIds(trimmed)).toEqual(withoutIds(whole.content));
        expect([at(stream, "stop_reason"), at(stream, "stop_sequence")]).toEqual([
          whole.stop_reason,
          whole.stop_sequence,
        ]);
        expect(whole.content.length).toBeGreaterThan(0);
        const shown = pieces.filter((one) => "says" in one).map((one) => ("says" in one ? one.says : ""));
        const texts = whole.content.map((block) => at(block, "text") ?? "").join("");
        expect(texts.replaceAll(/\s/g, "")).toBe(shown.join("").replaceAll(/\s/g, ""));
      }),
    );
  });
});

describe("stop", () => {
  const stopOf = async (reason: ChoiceEndReason, extra: object = {}, fields: Partial<MessagesBody> = {}) => {
    const context = await contextOf(fields);
    const events = eventsOf(context.job, [{ says: "x" }], reason).map((event) =>
      event.type === "end" ? { ...event, ...extra } : event,
    );
    const { stop_reason, stop_sequence } = messageAnswer(context, resultsOf(events));
    const delta = streamed(context, events).find(({ event }) => event === "message_delta")?.data.delta;
    expect(delta).toEqual({ stop_reason, stop_sequence });
    return [stop_reason, stop_sequence];
  };

  test("end of turn, stop string, limit", async () => {
    expect(await stopOf("stop")).toEqual(["end_turn", null]);
    expect(await stopOf("stop", { stopString: "STOP" })).toEqual(["stop_sequence", "STOP"]);
    expect(await stopOf("length", {}, { max_tokens: 5 })).toEqual(["max_tokens", null]);
    expect(await stopOf("length")).toEqual(["max_tokens", null]);
  });

  test("the window, when it was smaller than what the client and the server allow", async () => {
    expect(await stopOf("length", {}, { max_tokens: 32_000 })).toEqual(["model_context_window_exceeded", null]);
    // 4096 of window less the prompt is more than this.
    expect(await stopOf("length", {}, { max_tokens: 4000 })).toEqual(["max_tokens", null]);
    const context = await contextOf({ max_tokens: 128_000 }, { ...DEFAULT_SERVER_OPTIONS, maxTokensCap: 100 });
    const answer = messageAnswer(context, resultsOf(eventsOf(context.job, [], "length")));
    expect(answer.stop_reason).toBe("max_tokens");
  });

  test("a call wins over the limit; a shutdown is an error, never a stop", async () => {
    const context = await contextOf();
    expect(both(context, [{ calls: ["f", "{}"] }], "length").whole.stop_reason).toBe("tool_use");
    expect(() => both(context, [{ says: "x" }], "cancelled")).toThrow("shutting down");
  });
});

test("usage: what was read from the cache is not input", async () => {
  const context = await contextOf();
  const prompt = context.job.prompts[0]?.length ?? 0;
  const events = eventsOf(context.job, [{ says: "x" }], "stop");
  const whole = messageAnswer(context, resultsOf(events));
  expect(whole.usage).toEqual({
    input_tokens: prompt - 3,
    cache_read_input_tokens: 3,
    cache_creation_input_tokens: 0,
    output_tokens: 50,
  });
  const [start, ...rest] = streamed(context, events);
  expect(at(start?.data, "message", "usage")).toEqual({
    input_tokens: prompt,
    cache_read_input_tokens: 0,
    cache_creation_input_tokens: 0,
    output_tokens: 0,
  });
  expect(rest.find(({ event }) => event === "message_delta")?.data.usage).toEqual({
    input_tokens: prompt - 3,
    cache_read_input_tokens: 3,
    output_tokens: 50,
  });
});
