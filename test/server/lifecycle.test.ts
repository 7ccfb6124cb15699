/** Lost clients, full queues and shutdown: what the engine is told, and that places in the queue come back. */
import { describe, expect, test } from "bun:test";
import { at, dataLines, type Harness, harness, until } from "./harness.ts";
import { writes } from "./scripted-engine.ts";

const CHAT = { messages: [{ role: "user", content: "hi" }] };
const ENDLESS = () => writes("on and on. ", { endless: true, stepMs: 5, ids: [97, 98] });

async function queueOf(h: Harness): Promise<unknown> {
  return at(await (await fetch(`${h.url}/health`)).json(), "queue");
}

describe("lost clients", () => {
  test.each([
    ["a stream, while it writes", { ...CHAT, stream: true }, ENDLESS],
    ["a stream, before the first token", { ...CHAT, stream: true }, () => writes("x", { stepMs: 60_000 })],
    ["an unstreamed answer", CHAT, ENDLESS],
    ["an unstreamed answer, before the first token", CHAT, () => writes("x", { stepMs: 60_000 })],
    ["three choices", { ...CHAT, n: 3, temperature: 1, seed: 1, stream: true }, ENDLESS],
  ])("%s: the rows are cancelled and the place is free", async (_name, body, script) => {
    await using h = harness(script);
    const rows = "n" in body ? 3 : 1;
    const client = new AbortController();
    const reply = h.post("/v1/chat/completions", body, { signal: client.signal });
    if ("stream" in body) void (await reply).text().catch(() => undefined);
    else void reply.catch(() => undefined);
    await until(() => h.engine.active === rows);
    client.abort();
    await until(() => h.engine.active === 0);
    expect(h.engine.cancelled.length).toBe(rows);
    expect(await queueOf(h)).toEqual({ running: 0, waiting: 0 });
  });

  test("a socket that is cut is noticed too, also twenty times over", async () => {
    await using h = harness(ENDLESS, { maxBatch: 1, maxQueue: 1 });
    for (let i = 0; i < 20; i++) {
      const text = JSON.stringify({ ...CHAT, stream: true });
      const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
      const first = Promise.withResolvers<void>();
      const socket = await Bun.connect({
        hostname: "127.0.0.1",
        port: h.port,
        socket: { data: () => first.resolve(), error: () => first.resolve() },
      });
      socket.write(`${head}Content-Length: ${text.length}\r\n\r\n${text}`);
      await first.promise;
      socket.terminate();
      await until(() => h.engine.active === 0 && h.engine.cancelled.length === i + 1);
    }
    expect(await queueOf(h)).toEqual({ running: 0, waiting: 0 });
  });
});

describe("queue", () => {
  test("above the limit: 429 with its code, streams too; then places come back", async () => {
    await using h = harness(ENDLESS, { maxBatch: 1, maxQueue: 1 });
    const clients = [new AbortController(), new AbortController()];
    for (const client of clients) {
      void h.post("/v1/chat/completions", CHAT, { signal: client.signal }).catch(() => undefined);
    }
    await until(() => h.engine.active === 2);
    for (const body of [CHAT, { ...CHAT, stream: true }]) {
      const refused = await h.post("/v1/chat/completions", body);
      expect(refused.status).toBe(429);
      expect(refused.headers.get("retry-after")).toBe("1");
      expect(at(await refused.json(), "error")).toMatchObject({ type: "rate_limit_error", code: "queue_full" });
    }
    for (const client of clients) client.abort();
    await until(() => h.engine.active === 0);
    const next = await h.post("/v1/chat/completions", { ...CHAT, max_tokens: 2 });
    expect(next.status).toBe(200);
  });

  test("a request never runs more rows at once than a batch has", async () => {
    await using h = harness(() => writes("abc", { stepMs: 1 }), { maxBatch: 2 });
    const reply = await h.post("/v1/completions", { prompt: Array(9).fill("p") });
    expect(at(await reply.json(), "choices", "length")).toBe(9);
    expect(h.engine.activePeak).toBe(2);
  });

  test("the engine's own refusal is a 429 as well", async () => {
    const error = { kind: "queue_full" as const, message: "too many" };
    await using h = harness(() => writes("abc", { failure: { after: 0, error } }));
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(429);
  });
});

describe("shutdown", () => {
  test("running answers end within the drain time, new ones are refused", async () => {
    await using h = harness(() => writes("slowly but surely", { stepMs: 5 }));
    const running = h.post("/v1/chat/completions", CHAT);
    await until(() => h.engine.active === 1);
    const stopped = h.stop(2000);
    const refused = await h.post("/v1/chat/completions", CHAT).catch(() => null);
    if (refused !== null) expect(refused.status).toBe(503);
    const reply = await running;
    expect(reply.status).toBe(200);
    expect(at(await reply.json(), "choices", 0, "message", "content")).toBe("slowly but surely");
    await stopped;
    expect(h.engine.shutdowns).toEqual([2000]);
    await expect(fetch(`${h.url}/health`)).rejects.toThrow();
  });

  test("what does not end in time is cut, and a stream says why", async () => {
    await using h = harness(ENDLESS);
    const stream = await h.post("/v1/chat/completions", { ...CHAT, stream: true });
    const whole = h.post("/v1/chat/completions", CHAT);
    await until(() => h.engine.active === 2);
    const text = stream.text();
    await h.stop(20);
    expect(dataLines(await text).at(-1)).toEqual({
      error: { message: "the server is shutting down", type: "service_unavailable", code: "model_not_ready" },
    });
    expect((await whole).status).toBe(503);
  });
});
