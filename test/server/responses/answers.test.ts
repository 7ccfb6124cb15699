/** Answers of POST /v1/responses: items, the order of events, and that both forms tell the same. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { responseContext, wholeResponse } from "../../../src/server/responses/body.ts";
import { type ResponseBody, responseRequest } from "../../../src/server/responses/request.ts";
import { ResponseStream } from "../../../src/server/responses/stream.ts";
import { at, dataLines, harness } from "../harness.ts";
import { writes } from "../scripted-engine.ts";
import { eventsOf, jobOf, resultsOf, type Said } from "../wire.ts";

const CAP = { maxTokensCap: 777 };

const THOUGHT: Said = { thinks: " Hm. " };
const SAID: readonly Said[] = [
  THOUGHT,
  { says: "Let me" },
  { says: " look." },
  { calls: ["a", '{"x":1}'] },
  { calls: ["b", "{}"] },
  { says: "Done" },
];
const TOOLS = [
  { type: "function", name: "a" },
  { type: "namespace", name: "team", tools: [{ type: "function", name: "b" }] },
];

async function answered(body: Partial<ResponseBody>, said: readonly Said[], reason: "stop" | "length" | "tool_calls") {
  const { generation, echo } = responseRequest({ input: "hi", tools: TOOLS, ...body }, 0, CAP);
  const job = await jobOf(generation);
  const context = responseContext(job, echo);
  const events = eventsOf(job, said, reason);
  const stream = new ResponseStream(context);
  const frames = [...stream.open(), ...events.flatMap((event) => stream.push(event)), ...stream.close()];
  const text = frames.map((frame) => frame.toSSE()).join("");
  return {
    whole: wholeResponse(context, resultsOf(events)),
    text,
    events: dataLines(text.replaceAll(/^event: .*\n/gm, "")),
  };
}

/** Items get new ids every time. */
function withoutIds(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (key, field: unknown) => (key === "id" || key === "call_id" ? "-" : field)));
}

describe("answers", () => {
  test("every key that the SDK's types promise, and items in order", async () => {
    const { whole } = await answered({ reasoning: { summary: "auto" }, instructions: "be" }, SAID, "tool_calls");
    const item = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}_[0-9a-f]{32}$`));
    const call_id = expect.stringMatching(/^call_[a-z0-9]{24}$/);
    const part = (text: string) => ({ type: "output_text" as const, text, annotations: [], logprobs: [] });
    const message = { type: "message", id: item("msg"), status: "completed", role: "assistant" } as const;
    const call = { type: "function_call", id: item("fc"), call_id, status: "completed" } as const;
    expect(whole).toEqual({
      id: item("resp"),
      object: "response",
      created_at: expect.any(Number),
      status: "completed",
      error: null,
      incomplete_details: null,
      instructions: "be",
      metadata: {},
      model: "scripted-1b",
      output: [
        {
          type: "reasoning",
          id: item("rs"),
          summary: [{ type: "summary_text", text: "Hm." }],
          content: [{ type: "reasoning_text", text: "Hm." }],
        },
        { ...message, content: [part("Let me look.")] },
        { ...call, name: "a", arguments: '{"x":1}' },
        { ...call, name: "b", namespace: "team", arguments: "{}" },
        { ...message, content: [part("Done")] },
      ],
      output_text: "Let me look.Done",
      parallel_tool_calls: true,
      temperature: 0,
      tool_choice: "auto",
      tools: [
        { type: "function", name: "a", parameters: null, strict: false },
        { type: "function", name: "b", parameters: null, strict: false },
      ],
      top_p: 1,
      max_output_tokens: null,
      previous_response_id: null,
      reasoning: { effort: null, summary: "auto" },
      text: { format: { type: "text" } },
      truncation: "disabled",
      access_programs: null,
      usage: {
        input_tokens: 20,
        input_tokens_details: { cached_tokens: 3 },
        output_tokens: 50,
        output_tokens_details: { reasoning_tokens: 20 },
        total_tokens: 70,
      },
      x_mlx_dspark: expect.objectContaining({ mode: "baseline", completion_tokens: 50 }),
    });
  });

  test("a limit makes it incomplete, and the text that it cut", async () => {
    const { whole, events } = await answered({}, [{ says: "a b" }], "length");
    expect(whole).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output: [{ type: "message", status: "incomplete" }],
    });
    expect(at(events.at(-1), "type")).toBe("response.incomplete");
    const cutInThoughts = await answered({}, [THOUGHT], "length");
    expect(at(cutInThoughts.whole, "output", "length")).toBe(1);
  });

  test("no text, no item", async () => {
    const { whole, events } = await answered({}, [], "stop");
    expect(whole).toMatchObject({ status: "completed", output: [], output_text: "" });
    expect(events.map((event) => at(event, "type"))).toEqual([
      "response.created",
      "response.in_progress",
      "response.completed",
    ]);
  });

  test("through the SDK: text as it came", async () => {
    await using h = harness();
    const reply = await h.client.responses.create({ model: "gpt", input: "hi", instructions: "be short" });
    expect([reply.output_text, reply.status, reply.model]).toEqual(["Hello, world.", "completed", "gpt"]);
    expect(reply.usage?.total_tokens).toBe(26 + 14);
    expect(h.text.conversations[0]?.messages[0]).toEqual({ role: "system", content: "be short" });
  });
});

describe("streams", () => {
  test("events in their order, numbered from 0, and no item is open while another is", async () => {
    const { events, text } = await answered({ reasoning: { summary: "auto" } }, SAID, "tool_calls");
    const message = (deltas: number) => [
      "response.output_item.added",
      "response.content_part.added",
      ...Array(deltas).fill("response.output_text.delta"),
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
    ];
    const call = [
      "response.output_item.added",
      "response.function_call_arguments.delta",
      "response.function_call_arguments.done",
      "response.output_item.done",
    ];
    expect(events.map((event) => at(event, "type"))).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.reasoning_summary_part.added",
      "response.reasoning_summary_text.delta",
      "response.reasoning_summary_text.done",
      "response.reasoning_summary_part.done",
      "response.output_item.done",
      ...message(2),
      ...call,
      ...call,
      ...message(1),
      "response.completed",
    ]);
    expect(events.map((event) => at(event, "sequence_number"))).toEqual(events.map((_, i) => i));
    const indices = events.flatMap((event) => at(event, "output_index") ?? []);
    expect(indices).toEqual([...indices].sort());
    expect(text).not.toContain("[DONE]");
    const lines = text.split("\n\n").filter((frame) => frame !== "");
    for (const line of lines) {
      const [, name, data] = /^event: (\S+)\ndata: (.*)$/.exec(line) ?? [];
      expect(at(JSON.parse(data ?? ""), "type")).toBe(name);
    }
  });

  test("the last event holds the very items that were streamed", async () => {
    const { events, whole } = await answered({ reasoning: { summary: "auto" } }, SAID, "tool_calls");
    const done = events.filter((event) => at(event, "type") === "response.output_item.done");
    const final = at(events.at(-1), "response");
    expect(at(final, "output")).toEqual(done.map((event) => at(event, "item")));
    expect(withoutIds(final)).toEqual(withoutIds(whole));
    expect(at(events[0], "response", "status")).toBe("in_progress");
    expect(at(events[0], "response", "x_mlx_dspark", "req")).toMatch(/^[0-9a-f]{8}$/);
  });

  test("whatever is written in whatever order, both forms tell the same", async () => {
    const piece = fc.oneof(
      fc.record({ thinks: fc.string({ minLength: 1, unit: "grapheme" }) }),
      fc.record({ says: fc.string({ minLength: 1, unit: "grapheme" }) }),
      fc.record({ calls: fc.tuple(fc.constantFrom("a", "b", "c"), fc.constantFrom("{}", '{"x":[1]}')) }),
    );
    const reason = fc.constantFrom("stop" as const, "length" as const, "tool_calls" as const);
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 8 }), reason, fc.boolean(), async (said, end, summarized) => {
        const { whole, events } = await answered({ reasoning: { summary: summarized ? "auto" : null } }, said, end);
        expect(withoutIds(at(events.at(-1), "response"))).toEqual(withoutIds(whole));
        const added = events.filter((event) => at(event, "type") === "response.output_item.added");
        expect(added.map((event) => at(event, "output_index"))).toEqual(added.map((_, index) => index));
      }),
    );
  });

  test("thoughts are summarized only for who asked", async () => {
    const { events } = await answered({}, [THOUGHT], "stop");
    expect(events.some((event) => String(at(event, "type")).includes("summary"))).toBe(false);
    expect(at(events.at(-1), "response", "output", 0)).toMatchObject({ summary: [], content: [{ text: "Hm." }] });
  });

  test("through the SDK's helper", async () => {
    await using h = harness(() => writes("Ein Löwe 🦁.", { perStep: 3 }));
    const stream = h.client.responses.stream({ model: "m", input: "hi" });
    const deltas: string[] = [];
    stream.on("response.output_text.delta", ({ delta }) => deltas.push(delta));
    const final = await stream.finalResponse();
    expect([deltas.join(""), final.output_text, final.status]).toEqual(["Ein Löwe 🦁.", "Ein Löwe 🦁.", "completed"]);
  });

  test("silence is filled by comments, headers come at once", async () => {
    await using h = harness(() => writes("x", { stepMs: 100 }), { keepAliveMs: 25 });
    const reply = await h.post("/v1/responses", { input: "hi", stream: true });
    expect(reply.headers.get("content-type")).toBe("text/event-stream");
    expect((await reply.text()).match(/^: keepalive$/gm)?.length).toBeGreaterThanOrEqual(2);
  });

  test("an error after the headers is response.failed, and the last event", async () => {
    const failure = { after: 2, error: { kind: "internal" as const, message: "out of luck in /home/x/engine.ts" } };
    await using h = harness(() => writes("abcdef", { failure }));
    const text = await (await h.post("/v1/responses", { input: "hi", stream: true })).text();
    const last = dataLines(text.replaceAll(/^event: .*\n/gm, "")).at(-1);
    expect(last).toMatchObject({
      type: "response.failed",
      response: { status: "failed", error: { code: "server_error", message: "out of luck in engine.ts" }, usage: null },
    });
  });
});
