/** Tools and thoughts from the model's text to OpenAI's own client, whole and streamed, on chat and on responses. */
import { describe, expect, test } from "bun:test";
import type { RunnableToolFunctionWithParse } from "openai/lib/RunnableFunction";
import { at, dataLines, type Harness, harness } from "./harness.ts";
import { type Script, writes } from "./scripted-engine.ts";

const HI = [{ role: "user" as const, content: "Weather in Oslo?" }];
const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const TOOLS = [{ type: "function" as const, function: { name: "weather", parameters: PARAMETERS } }];
const FLAT_TOOLS = [{ type: "function" as const, name: "weather", parameters: PARAMETERS, strict: null }];

const call = (city: string) => `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
const TURN = `<think>\nWhere? Oslo.\n</think>\n\nLet me look.\n${call("Oslo")}\n${call("Bergen")}`;

/** Answers, one a request; the last one is repeated. */
function answers(texts: readonly string[], extra: Partial<Script> = {}): Harness {
  let asked = 0;
  return harness(() => writes(texts[Math.min(asked++, texts.length - 1)] ?? "", extra));
}

describe("chat completions", () => {
  test("a turn with thoughts, text and two calls, whole and in pieces of any size", async () => {
    for (const perStep of [1, 3, 1000]) {
      await using h = answers([TURN], { perStep });
      const whole = await h.client.chat.completions.create({ model: "m", messages: HI, tools: TOOLS });
      const stream = h.client.chat.completions.stream({
        model: "m",
        messages: HI,
        tools: TOOLS,
        stream_options: { include_usage: true },
      });
      const thoughts: unknown[] = [];
      stream.on("chunk", (chunk) => thoughts.push(at(chunk, "choices", 0, "delta", "reasoning_content") ?? ""));
      const final = await stream.finalChatCompletion();
      expect(at(whole.choices[0]?.message, "reasoning_content")).toBe("Where? Oslo.");
      expect(thoughts.join("").trim()).toBe("Where? Oslo.");
      for (const [choice, usage] of [
        [whole.choices[0], whole.usage],
        [final.choices[0], final.usage],
      ] as const) {
        expect(choice?.finish_reason).toBe("tool_calls");
        expect(choice?.message.content).toBe("Let me look.");
        const calls = choice?.message.tool_calls ?? [];
        expect(calls.map((one) => at(one, "function", "arguments"))).toEqual(['{"city":"Oslo"}', '{"city":"Bergen"}']);
        expect(new Set(calls.map(({ id }) => id)).size).toBe(2);
        expect(usage?.completion_tokens).toBe(TURN.length + 1);
        expect(usage?.completion_tokens_details?.reasoning_tokens).toBeGreaterThanOrEqual("Where? Oslo.".length);
        expect(usage?.completion_tokens_details?.reasoning_tokens).toBeLessThan(
          "<think>\nWhere? Oslo.\n</think>\n\n".length,
        );
      }
    }
  });

  test("without tools, and with none of them to be called, the markup is text", async () => {
    await using h = answers([call("Oslo")]);
    const plain = await h.client.chat.completions.create({ model: "m", messages: HI });
    const none = await h.client.chat.completions.create({
      model: "m",
      messages: HI,
      tools: TOOLS,
      tool_choice: "none",
    });
    for (const reply of [plain, none]) {
      expect(reply.choices[0]?.message.content).toBe(call("Oslo"));
      expect(reply.choices[0]?.finish_reason).toBe("stop");
    }
    expect(h.text.conversations.map(({ tools }) => tools?.length ?? 0)).toEqual([0, 0]);
  });

  test("parallel_tool_calls false keeps the first call and stops behind it", async () => {
    await using h = answers([TURN]);
    const body = { model: "m", messages: HI, tools: TOOLS, parallel_tool_calls: false };
    const reply = await h.client.chat.completions.create(body);
    expect(reply.choices[0]?.message.tool_calls?.length).toBe(1);
    expect(reply.choices[0]?.finish_reason).toBe("tool_calls");
    expect(h.engine.cancelled.length).toBe(1);
  });

  test("thinking, effort and the template's own arguments reach the template", async () => {
    await using h = answers(["ok"], {});
    const send = (extra: object) => h.post("/v1/chat/completions", { messages: HI, ...extra });
    await send({ enable_thinking: false, chat_template_kwargs: { enable_thinking: true, preserve_thinking: true } });
    await send({ reasoning_effort: "max" });
    await send({});
    expect(h.text.rendered.map(({ enableThinking, reasoningEffort }) => [enableThinking, reasoningEffort])).toEqual([
      [false, undefined],
      [undefined, "xhigh"],
      [undefined, undefined],
    ]);
    expect(h.text.conversations[0]?.kwargs).toEqual({ preserve_thinking: true });
  });

  test("a stop string ends the answer, not the thoughts, and no call", async () => {
    await using h = answers([`<think>a, b</think>c, d`, call("Oslo, Norway")]);
    const first = await h.client.chat.completions.create({ model: "m", messages: HI, stop: ", " });
    expect(first.choices[0]?.message).toMatchObject({ content: "c", reasoning_content: "a, b" });
    const second = await h.client.chat.completions.create({ model: "m", messages: HI, stop: ", ", tools: TOOLS });
    expect(at(second.choices[0], "message", "tool_calls", 0, "function", "arguments")).toBe('{"city":"Oslo, Norway"}');
  });

  test.each([false, true])("the SDK's runTools goes round, streamed: %p", async (stream) => {
    await using h = answers([`Hm.${call("Oslo")}`, "It rains."]);
    const asked: unknown[] = [];
    const weather: RunnableToolFunctionWithParse<{ city: string }> = {
      type: "function",
      function: {
        name: "weather",
        description: "Of a city",
        parameters: PARAMETERS,
        parse: (text) => JSON.parse(text),
        function: (args) => {
          asked.push(args);
          return "rain";
        },
      },
    };
    const body = { model: "m", messages: HI, tools: [weather] };
    const content = stream
      ? await h.client.chat.completions.runTools({ ...body, stream: true }).finalContent()
      : await h.client.chat.completions.runTools(body).finalContent();
    expect([content, asked]).toEqual(["It rains.", [{ city: "Oslo" }]]);
    const [, second] = h.text.conversations;
    const id = at(second, "messages", 1, "toolCalls", 0, "id");
    expect(second?.messages.slice(1)).toEqual([
      { role: "assistant", content: "Hm.", toolCalls: [{ id, name: "weather", arguments: '{"city":"Oslo"}' }] },
      { role: "tool", toolCallId: id, content: "rain" },
    ] as never);
  });
});

describe("responses", () => {
  test("the same turn as items, whole and streamed", async () => {
    await using h = answers([TURN], { perStep: 5 });
    const body = { model: "m", input: "Weather?", tools: FLAT_TOOLS, reasoning: { summary: "auto" as const } };
    const whole = await h.client.responses.create(body);
    const final = await h.client.responses.stream(body).finalResponse();
    for (const response of [whole, final]) {
      expect(response.output.map(({ type }) => type)).toEqual([
        "reasoning",
        "message",
        "function_call",
        "function_call",
      ]);
      expect(response.output_text).toBe("Let me look.");
      expect(at(response.output, 0, "summary", 0, "text")).toBe("Where? Oslo.");
      expect(at(response.output, 3)).toMatchObject({
        name: "weather",
        arguments: '{"city":"Bergen"}',
        status: "completed",
      });
      expect(response.usage?.output_tokens_details.reasoning_tokens).toBeGreaterThan(0);
      expect(response.status).toBe("completed");
    }
  });

  test("a turn and its results, sent back as items, are one assistant's turn", async () => {
    await using h = answers([TURN, "It rains."]);
    const first = await h.client.responses.create({ model: "m", input: "Weather?", tools: FLAT_TOOLS });
    const outputs = first.output.flatMap((item) =>
      item.type === "function_call"
        ? [{ type: "function_call_output" as const, call_id: item.call_id, output: "rain" }]
        : [],
    );
    const input = [{ role: "user" as const, content: "Weather?" }, ...first.output, ...outputs];
    const second = await h.client.responses.create({ model: "m", input: input as never, tools: FLAT_TOOLS });
    expect(second.output_text).toBe("It rains.");
    expect(h.text.conversations[1]?.messages).toMatchObject([
      { role: "user" },
      {
        role: "assistant",
        content: "Let me look.",
        reasoning: "Where? Oslo.",
        toolCalls: [{ name: "weather" }, { name: "weather" }],
      },
      { role: "tool", content: "rain" },
      { role: "tool", content: "rain" },
    ]);
  });

  test("codex: a call of a function inside a namespace names it", async () => {
    await using h = answers([call("Oslo")]);
    const tools = [{ type: "namespace", name: "team", description: "", tools: FLAT_TOOLS }];
    const text = await (await h.post("/v1/responses", { input: "hi", tools, stream: true })).text();
    const done = dataLines(text.replaceAll(/^event: .*\n/gm, "")).find(
      (event) => at(event, "type") === "response.output_item.done",
    );
    expect(at(done, "item")).toMatchObject({ type: "function_call", name: "weather", namespace: "team" });
  });
});
