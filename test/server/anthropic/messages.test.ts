/** The Messages routes over HTTP: errors in their envelope, stop sequences, keep-alives, and counting beside the queue. */
import { describe, expect, test } from "bun:test";
import type { GenerateRequest } from "../../../src/engine/protocol.ts";
import { at, harness, until } from "../harness.ts";
import { ScriptedEngine, writes } from "../scripted-engine.ts";
import { accumulated, streamEvents } from "./events.ts";
import { templateServer } from "./template-server.ts";

const HI = [{ role: "user", content: "hi" }];

describe("errors", () => {
  async function refused(reply: Response, status: number, type: string): Promise<string> {
    const body: unknown = await reply.json();
    const message = at(body, "error", "message");
    const id = reply.headers.get("request-id");
    expect([reply.status, body]).toEqual([
      status,
      { type: "error", error: { type, message }, request_id: String(id) },
    ] as [number, unknown]);
    expect(id).toMatch(/^req_[0-9a-f]+$/);
    return String(message);
  }

  test("400: body, field, prompt", async () => {
    await using h = harness();
    const bad = async (body: unknown) => refused(await h.post("/v1/messages", body), 400, "invalid_request_error");
    expect(await bad({})).toBe("'messages': must be a non-empty array");
    expect(await bad("{")).toBe("the request body is not valid JSON");
    expect(await bad([])).toBe("the request body must be a JSON object");
    expect(await bad({ messages: HI, max_tokens: "many" })).toBe(
      "'max_tokens' must be an integer not below 1, got 'many'",
    );
    expect(await bad({ messages: [{ role: "user", content: "template, throw" }] })).toStartWith(
      "could not apply chat template: ",
    );
    const long = { messages: [{ role: "user", content: "x".repeat(5000) }] };
    expect(await bad(long)).toBe("prompt is too long: 5007 tokens > 4096 maximum");
    expect(h.engine.requests).toEqual([]);
  });

  test("401, 404, 405, 413, 429, 503", async () => {
    await using locked = harness(undefined, { apiKey: "secret" });
    expect(await refused(await locked.post("/messages", { messages: HI }), 401, "authentication_error")).toBe(
      "invalid api key",
    );
    const key = { headers: { "x-api-key": "secret" } };
    expect((await locked.post("/v1/messages", { messages: HI }, key)).status).toBe(200);

    await using h = harness(() => writes("x", { stepMs: 20, endless: true }), {
      maxBatch: 1,
      maxQueue: 0,
      maxBodyBytes: 2000,
    });
    expect(await refused(await h.post("/v1/messages/batches", {}), 404, "not_found_error")).toContain(
      "/v1/messages/batches",
    );
    await refused(await h.post("/messages/count_tokens/more", {}), 404, "not_found_error");
    await refused(await fetch(`${h.url}/v1/messages`), 405, "invalid_request_error");
    await refused(await h.post("/v1/messages", "x".repeat(3000)), 413, "request_too_large");
    const first = await h.post("/v1/messages", { messages: HI, stream: true });
    const second = await h.post("/v1/messages", { messages: HI });
    expect(second.headers.get("retry-after")).toBe("1");
    await refused(second, 429, "rate_limit_error");
    await first.body?.cancel();
    h.engine.status = { state: "no_model" };
    const none = await h.post("/v1/messages", { messages: HI });
    expect(none.headers.get("retry-after")).toBe("1");
    await refused(none, 503, "api_error");
    await refused(await h.post("/v1/messages/count_tokens", { messages: HI }), 503, "api_error");
  });

  test("other routes keep OpenAI's envelope", async () => {
    await using h = harness();
    for (const path of ["/v1/chat/completions", "/v1/messagesx", "/v1/message"]) {
      const body: unknown = await (await h.post(path, {})).json();
      expect([at(body, "type"), typeof at(body, "error", "type")]).toEqual([undefined, "string"]);
    }
  });

  test("a failure of the engine: 500 whole, an error event in a stream, with neither stack nor path", async () => {
    const error = { kind: "internal", message: "the kernel at /somewhere/x/kernel.metal failed" } as const;
    await using h = harness(() => writes("Hello", { failure: { after: 2, error } }));
    expect(await refused(await h.post("/v1/messages", { messages: HI }), 500, "api_error")).toBe(
      "the kernel at kernel.metal failed",
    );
    const events = streamEvents(await (await h.post("/v1/messages", { messages: HI, stream: true })).text());
    expect(events.at(-1)).toEqual({
      event: "error",
      data: { type: "error", error: { type: "api_error", message: "the kernel at kernel.metal failed" } },
    });
    expect(events.some(({ event }) => event === "message_stop")).toBe(false);
  });
});

describe("answers", () => {
  test("a stop sequence is reported with its text", async () => {
    await using h = harness(() => writes("one, two, three"));
    const body = { messages: HI, stop_sequences: ["three", ", two"] };
    const whole: unknown = await (await h.post("/v1/messages", body)).json();
    expect([at(whole, "content"), at(whole, "stop_reason"), at(whole, "stop_sequence")]).toEqual([
      [{ type: "text", text: "one" }],
      "stop_sequence",
      ", two",
    ]);
    const events = streamEvents(await (await h.post("/messages?beta=true", { ...body, stream: true })).text());
    expect(accumulated(events)).toMatchObject({ stop_reason: "stop_sequence", stop_sequence: ", two" });
  });

  test("max_tokens is cut to the cap and to the window, never refused", async () => {
    await using h = harness(undefined, { maxTokensCap: 1000 });
    await h.post("/v1/messages", { messages: HI, max_tokens: 128_000 });
    await h.post("/v1/messages", { messages: [{ role: "user", content: "x".repeat(4000) }], max_tokens: 500 });
    expect(h.engine.requests.map(({ maxNewTokens }) => maxNewTokens)).toEqual([1000, 4096 - 4007]);
  });

  test("the request's priority and the model's name", async () => {
    await using h = harness();
    const init = { headers: { "x-priority": "low" } };
    const named: unknown = await (await h.post("/v1/messages", { messages: HI, model: "claude-x" }, init)).json();
    const plain: unknown = await (await h.post("/v1/messages", { messages: HI })).json();
    expect([at(named, "model"), at(plain, "model")]).toEqual(["claude-x", "scripted-1b"]);
    expect(h.engine.requests.map(({ priority }) => priority)).toEqual([1, 0]);
    expect(at(named, "id")).toMatch(/^msg_[0-9a-f]{24}$/);
  });

  test("silence is filled with pings, and the start comes before the first token", async () => {
    await using h = harness(() => writes("ok", { stepMs: 60 }), { keepAliveMs: 15 });
    const events = streamEvents(await (await h.post("/v1/messages", { messages: HI, stream: true })).text());
    const first = events.findIndex(({ event }) => event === "content_block_start");
    expect(events.slice(0, first).every(({ event }, i) => event === (i === 0 ? "message_start" : "ping"))).toBe(true);
    expect(events.filter(({ event }) => event === "ping").length).toBeGreaterThan(3);
    expect(accumulated(events)).toMatchObject({ content: [{ type: "text", text: "ok" }] });
  });

  test("a lost client frees its row, streamed and whole", async () => {
    await using h = harness(() => writes("x", { stepMs: 5, endless: true }));
    for (const stream of [true, false]) {
      const gone = new AbortController();
      const init = { signal: gone.signal };
      const reply = h.post("/v1/messages", { messages: HI, stream, max_tokens: 4000 }, init).catch(() => null);
      await until(() => h.engine.active === 1);
      gone.abort();
      await reply;
      await until(() => h.engine.active === 0);
    }
    expect(h.engine.cancelled.length).toBe(2);
  });

  test("the billing line leaves the prompt, unless the server is told to keep it", async () => {
    const body = (fingerprint: string) => ({
      system: [
        { type: "text", text: `x-anthropic-billing-header: cc_version=2.1.332.${fingerprint};` },
        { type: "text", text: "Be short." },
      ],
      messages: HI,
    });
    for (const keepBillingHeader of [false, true]) {
      await using server = templateServer(["ok"], { keepBillingHeader });
      await server.post("/v1/messages", body("0b8"));
      await server.post("/v1/messages", body("e8f"));
      expect(server.promptOf(0) === server.promptOf(1)).toBe(!keepBillingHeader);
      expect(server.promptOf(0).includes("0b8")).toBe(keepBillingHeader);
    }
  });
});

describe("count_tokens", () => {
  const TOOL = { name: "get_weather", description: "Weather", input_schema: { type: "object", properties: {} } };

  test("system, tools and history count, nothing is generated, and any length is counted", async () => {
    await using server = templateServer(["ok"]);
    const count = async (body: object) => {
      const reply = await server.post("/v1/messages/count_tokens", { messages: HI, ...body });
      return Number(at(await reply.json(), "input_tokens"));
    };
    const plain = await count({});
    const counts = [
      await count({ system: "Be brief." }),
      await count({ tools: [TOOL] }),
      await count({ messages: [...HI, { role: "assistant", content: "yes?" }, ...HI] }),
    ];
    for (const more of counts) expect(more).toBeGreaterThan(plain);
    expect(await count({ tools: [{ ...TOOL, defer_loading: true }] })).toBe(plain);
    expect(await count({ messages: [{ role: "user", content: "word ".repeat(300_000) }] })).toBeGreaterThan(200_000);
    expect(server.engine.requests).toEqual([]);
  });

  test("bodies are checked as those of messages", async () => {
    await using h = harness();
    for (const body of [{}, { messages: [] }, { messages: HI, stop_sequences: {} }]) {
      expect((await h.post("/v1/messages/count_tokens", body)).status).toBe(400);
    }
  });
});

test("a title and a turn of Claude Code run side by side", async () => {
  const script = (request: GenerateRequest) => writes(`${request.promptIds.length}`, { stepMs: 20 });
  await using h = harness(script, { maxBatch: 2 }, new ScriptedEngine(script));
  const [title, turn] = [{ messages: HI }, { messages: [...HI, ...HI], stream: true }];
  await Promise.all([h.post("/v1/messages", title), h.post("/v1/messages", turn).then((reply) => reply.text())]);
  expect(h.engine.activePeak).toBe(2);
});
