/** POST /v1/chat/completions through OpenAI's own client: what comes back and what the engine was asked. */
import { describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { at, dataLines, harness } from "./harness.ts";
import { EOS, SCRIPTED_MODEL, ScriptedEngine, writes } from "./scripted-engine.ts";

const HI = [{ role: "user" as const, content: "hi" }];

describe("unstreamed", () => {
  test("the answer has every key that the SDK's types promise", async () => {
    await using h = harness();
    const reply = await h.client.chat.completions.create({ model: "gpt-9", messages: HI });
    expect(reply.id).toMatch(/^chatcmpl-[0-9a-f]{32}$/);
    expect(reply.object).toBe("chat.completion");
    expect(reply.model).toBe("gpt-9");
    expect(Math.abs(reply.created - Date.now() / 1000)).toBeLessThan(5);
    expect(reply.choices).toEqual([
      {
        index: 0,
        message: { role: "assistant", content: "Hello, world.", refusal: null },
        logprobs: null,
        finish_reason: "stop",
      },
    ]);
    // "user: hi\n" is 9 bytes; the text's 13 and the end of the turn are counted.
    expect(reply.usage).toEqual({
      prompt_tokens: 9,
      completion_tokens: 14,
      total_tokens: 23,
      prompt_tokens_details: { cached_tokens: 3 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
    expect(at(reply, "x_mlx_dspark")).toEqual({
      mode: "baseline",
      req: h.engine.requests[0]?.id,
      accept_len: 1,
      tokens_per_sec: 5.6,
      decode_tokens_per_sec: 7,
      target_forwards: 14,
      prompt_tokens: 9,
      cached_tokens: 3,
      completion_tokens: 14,
      context_tokens: 23,
      prefill_seconds: 0.5,
      decode_seconds: 2,
      ttft_seconds: 0.5,
      queue_seconds: 0.25,
    });
  });

  test("without a model in the request, the loaded one is named", async () => {
    await using h = harness();
    const reply = await (await h.post("/v1/chat/completions", { messages: HI })).json();
    expect(at(reply, "model")).toBe("scripted-1b");
  });

  test("sampling fields reach the engine as they were sent", async () => {
    await using h = harness();
    await h.post("/v1/chat/completions", {
      messages: HI,
      temperature: 0.7,
      top_p: 0.9,
      top_k: 40,
      min_p: 0.05,
      presence_penalty: 0.5,
      frequency_penalty: -0.5,
      repetition_penalty: 1.1,
      logit_bias: { "65": -100, "66": 3.5 },
      seed: 7,
      max_tokens: 5,
    });
    expect(h.engine.requests[0]).toMatchObject({
      maxNewTokens: 5,
      sampling: {
        temperature: 0.7,
        topP: 0.9,
        topK: 40,
        minP: 0.05,
        presencePenalty: 0.5,
        frequencyPenalty: -0.5,
        repetitionPenalty: 1.1,
        logitBias: [
          [65, -100],
          [66, 3.5],
        ],
        seed: "7",
      },
      eosIds: [EOS],
      topLogprobs: null,
      priority: 0,
    });
  });

  test("defaults: request over server flag over generation_config over greedy", async () => {
    const model = { ...SCRIPTED_MODEL, samplingDefaults: { temperature: 0.3, topP: 0.8 } };
    const engine = new ScriptedEngine(() => writes("a"), model);
    await using h = harness(undefined, { samplingDefaults: { topP: 0.6 }, defaultMaxTokens: 33 }, engine);
    await h.post("/v1/chat/completions", { messages: HI, top_k: 5, seed: null });
    const sampling = { temperature: 0.3, topP: 0.6, topK: 5, minP: 0, repetitionPenalty: 1, seed: null };
    expect(engine.requests[0]).toMatchObject({ maxNewTokens: 33, sampling });
  });

  test("max_completion_tokens wins, and cap and window clamp", async () => {
    await using h = harness(undefined, { maxTokensCap: 100 });
    await h.post("/v1/chat/completions", { messages: HI, max_tokens: 7, max_completion_tokens: 9 });
    await h.post("/v1/chat/completions", { messages: HI, max_tokens: 5000 });
    await h.post("/v1/completions", { prompt: "x".repeat(4090), max_tokens: 50 });
    expect(h.engine.requests.map((request) => request.maxNewTokens)).toEqual([9, 100, 6]);
  });

  test("a limit ends with length and cuts nothing else", async () => {
    await using h = harness();
    const reply = await h.client.chat.completions.create({ model: "", messages: HI, max_tokens: 5 });
    expect(reply.choices[0]?.message.content).toBe("Hello");
    expect(reply.choices[0]?.finish_reason).toBe("length");
    expect(reply.usage?.completion_tokens).toBe(5);
  });

  test("half a character at the limit is one U+FFFD, streamed and not", async () => {
    await using h = harness(() => writes("é€"));
    const body = { messages: HI, max_tokens: 3 };
    const whole = await (await h.post("/v1/chat/completions", body)).json();
    const chunks = dataLines(await (await h.post("/v1/chat/completions", { ...body, stream: true })).text());
    const streamed = chunks.map((chunk) => at(chunk, "choices", 0, "delta", "content") ?? "").join("");
    expect(at(whole, "choices", 0, "message", "content")).toBe("é\ufffd");
    expect(streamed).toBe("é\ufffd");
  });

  test("n choices: seeds follow each other, greedy ones share a row", async () => {
    await using h = harness((request) => writes(`seed ${request.sampling.seed}`));
    const sampled = await h.client.chat.completions.create({
      model: "",
      messages: HI,
      temperature: 1,
      seed: -1,
      n: 3,
    });
    expect(sampled.choices.map((choice) => choice.message.content)).toEqual([
      `seed ${2n ** 64n - 1n}`,
      "seed 0",
      "seed 1",
    ]);
    expect(sampled.choices.map((choice) => choice.index)).toEqual([0, 1, 2]);
    expect(sampled.usage?.completion_tokens).toBe(26 + 7 + 7);
    expect(sampled.usage?.prompt_tokens).toBe(9);
    const before = h.engine.requests.length;
    const greedy = await h.client.chat.completions.create({ model: "", messages: HI, n: 3, seed: 1 });
    expect(h.engine.requests.length - before).toBe(1);
    expect(greedy.choices.map((choice) => choice.message.content)).toEqual(["seed 1", "seed 1", "seed 1"]);
    expect(greedy.usage?.completion_tokens).toBe(21);
  });

  test("ignore_eos tells the engine to go on, and the mark itself is no text", async () => {
    await using h = harness(() => ({ ids: [65, EOS, 66], endless: true }));
    const reply = await (
      await h.post("/v1/chat/completions", { messages: HI, ignore_eos: true, max_tokens: 6 })
    ).json();
    expect(h.engine.requests[0]?.eosIds).toEqual([]);
    expect(at(reply, "choices", 0, "message", "content")).toBe("ABAB");
    expect(at(reply, "usage", "completion_tokens")).toBe(6);
  });

  test("return_token_ids gives the prompt's and the answer's ids, EOS included", async () => {
    await using h = harness(() => writes("ok"));
    const body = { messages: HI, return_token_ids: true };
    const reply = await (await h.post("/v1/chat/completions", body)).json();
    const promptIds = [...new TextEncoder().encode("user: hi\n")];
    expect(at(reply, "prompt_token_ids")).toEqual(promptIds);
    expect(at(reply, "choices", 0, "token_ids")).toEqual([111, 107, EOS]);
    const chunks = dataLines(await (await h.post("/v1/chat/completions", { ...body, stream: true })).text());
    expect(at(chunks[0], "prompt_token_ids")).toEqual(promptIds);
    expect(chunks.flatMap((chunk) => at(chunk, "choices", 0, "token_ids") ?? [])).toEqual([111, 107, EOS]);
  });

  test("x-priority: low is the background class", async () => {
    await using h = harness();
    const headers = { "content-type": "application/json", "x-priority": "low" };
    await h.post("/v1/chat/completions", { messages: HI }, { headers });
    expect(h.engine.requests[0]?.priority).toBe(1);
  });
});

describe("messages", () => {
  test("developer is system; parts are joined; unknown fields are ignored", async () => {
    await using h = harness();
    const content = [{ type: "text", text: "a" }, "b", { type: "text", text: "c", cache_control: { x: 1 } }];
    const reply = await h.post("/v1/chat/completions", {
      messages: [
        { role: "developer", content: "Be short.", zzz: 1 },
        { role: "user", content },
        {
          role: "assistant",
          content: null,
          reasoning: "hm",
          tool_calls: [{ function: { name: "f", arguments: "{}" } }],
        },
        { role: "tool", tool_call_id: "c1", content: "4" },
      ],
      store: true,
      metadata: { a: 1 },
      unheard_of: [1, 2],
    });
    expect(reply.status).toBe(200);
    expect(h.text.conversations[0]?.messages).toEqual([
      { role: "system", content: "Be short." },
      { role: "user", content: "a\nb\nc" },
      {
        role: "assistant",
        content: "",
        reasoning: "hm",
        toolCalls: [{ id: "call_0", name: "f", arguments: "{}" }],
      },
      { role: "tool", content: "4", toolCallId: "c1" },
    ]);
  });
});

describe("refusals", () => {
  const cases: readonly (readonly [string, object, string | null, RegExp])[] = [
    ["no messages", {}, "messages", /'messages' must be a non-empty list/],
    ["empty messages", { messages: [] }, "messages", /'messages' must be a non-empty list/],
    ["messages as text", { messages: "hi" }, "messages", /'messages' must be a non-empty list/],
    ["role missing", { messages: [{ content: "x" }] }, "messages[0].role", /required/],
    ["role unknown", { messages: [{ role: "bot", content: "x" }] }, "messages[0].role", /unknown role 'bot'/],
    ["content a number", { messages: [{ role: "user", content: 3 }] }, "messages[0].content", /string/],
    ["temperature text", { messages: HI, temperature: "hot" }, "temperature", /a number between 0 and 2, got 'hot'/],
    ["temperature too high", { messages: HI, temperature: 2.5 }, "temperature", /between 0 and 2/],
    ["temperature negative", { messages: HI, temperature: -1 }, "temperature", /between 0 and 2/],
    ["top_p zero", { messages: HI, top_p: 0 }, "top_p", /above 0 and at most 1/],
    ["top_p 7", { messages: HI, top_p: 7 }, "top_p", /at most 1/],
    ["top_k negative", { messages: HI, top_k: -1 }, "top_k", /integer not below 0/],
    ["min_p 2", { messages: HI, min_p: 2 }, "min_p", /between 0 and 1/],
    ["repetition_penalty 0", { messages: HI, repetition_penalty: 0 }, "repetition_penalty", /above 0/],
    ["max_tokens zero", { messages: HI, max_tokens: 0 }, "max_tokens", /max_tokens/],
    ["max_tokens fraction", { messages: HI, max_tokens: 1.5 }, "max_tokens", /integer/],
    ["max_tokens a numeral", { messages: HI, max_tokens: "5" }, "max_tokens", /integer not below 1, got '5'/],
    ["seed a numeral", { messages: HI, seed: "5" }, "seed", /integer/],
    ["n 9", { messages: HI, n: 9 }, "n", /between 1 and 8/],
    ["stop empty", { messages: HI, stop: "" }, "stop", /non-empty/],
    ["stop holds an empty one", { messages: HI, stop: ["a", ""] }, "stop", /non-empty/],
    ["stop 17", { messages: HI, stop: Array(17).fill("a") }, "stop", /at most 16/],
    ["logit_bias key", { messages: HI, logit_bias: { a: 1 } }, "logit_bias", /token id/],
    ["logit_bias id", { messages: HI, logit_bias: { "257": 1 } }, "logit_bias", /vocabulary/],
    ["logit_bias value", { messages: HI, logit_bias: { "1": 101 } }, "logit_bias[1]", /between -100 and 100/],
    ["top_logprobs alone", { messages: HI, top_logprobs: 2 }, "top_logprobs", /needs 'logprobs'/],
    ["top_logprobs 21", { messages: HI, logprobs: true, top_logprobs: 21 }, "top_logprobs", /between 0 and 20/],
    ["stream text", { messages: HI, stream: "yes" }, "stream", /true or false/],
    ["seed fraction", { messages: HI, seed: 0.5 }, "seed", /integer/],
    [
      "effort",
      { messages: HI, reasoning_effort: "mega" },
      "reasoning_effort",
      /one of low, medium, high, xhigh, got 'mega'/,
    ],
    ["response_format", { messages: HI, response_format: { type: "json_object" } }, "response_format", /not supported/],
    ["grammar", { messages: HI, grammar: "root ::= x" }, "grammar", /'grammar' is not supported/],
    ["audio", { messages: HI, modalities: ["text", "audio"] }, "modalities", /audio/],
    [
      "kwargs with messages",
      { messages: HI, chat_template_kwargs: { messages: [] } },
      "chat_template_kwargs",
      /messages/,
    ],
    [
      "template throws",
      { messages: [{ role: "user", content: "template, throw" }] },
      "messages",
      /could not apply chat/,
    ],
  ];
  test.each(cases)("%s", async (_name, body, param, message) => {
    await using h = harness();
    const reply = await h.post("/v1/chat/completions", body);
    const json: unknown = await reply.json();
    expect(reply.status).toBe(400);
    expect(at(json, "error", "type")).toBe("invalid_request_error");
    expect(at(json, "error", "param")).toBe(param);
    expect(at(json, "error", "code")).toBeNull();
    expect(at(json, "error", "message")).toMatch(message);
    expect(h.engine.requests).toEqual([]);
  });

  test("null means absent, and settings without effect are let through", async () => {
    await using h = harness();
    const reply = await h.post("/v1/chat/completions", {
      messages: HI,
      temperature: null,
      stop: null,
      tools: [],
      response_format: { type: "text" },
      modalities: ["text"],
      stream_options: { include_usage: null },
    });
    expect(reply.status).toBe(200);
    const none = { messages: HI, tools: [{ type: "function", function: { name: "f" } }], tool_choice: "none" };
    expect((await h.post("/v1/chat/completions", none)).status).toBe(200);
  });

  test("a picture is refused by its type and its data is not echoed", async () => {
    await using h = harness();
    const content = [{ type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } }];
    const reply = await h.post("/v1/chat/completions", { messages: [{ role: "user", content }] });
    const text = await reply.text();
    expect(reply.status).toBe(400);
    expect(text).toContain("image_url");
    expect(text).not.toContain("iVBOR");
  });

  test("a prompt beyond the window names both numbers and the code", async () => {
    await using h = harness();
    const messages = [{ role: "user" as const, content: "x".repeat(5000) }];
    const error = await h.client.chat.completions.create({ model: "", messages }).catch((e: unknown) => e);
    if (!(error instanceof OpenAI.BadRequestError)) throw new Error("expected a BadRequestError");
    expect(error.message).toContain("prompt is too long: 5007 tokens > 4096 maximum");
    expect(error.code).toBe("context_length_exceeded");
    expect(error.param).toBe("messages");
  });
});
