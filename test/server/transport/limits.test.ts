/** The bounds of the transport, met on purpose: headers, bodies in size, time and depth, requests at once. */
import { describe, expect, test } from "bun:test";
import { DEFAULT_LIMITS } from "../../../src/server/http/limits.ts";
import { at, harness, until } from "../harness.ts";
import { writes } from "../scripted-engine.ts";

const CHAT = { messages: [{ role: "user", content: "hi" }] };

/** A socket that sends what it is told and keeps what comes. */
async function socketTo(port: number) {
  const chunks: Uint8Array[] = [];
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      data: (_socket, data) => {
        chunks.push(data);
      },
      close: () => resolve(),
      error: () => resolve(),
    },
  });
  return { socket, closed, text: () => Buffer.concat(chunks).toString() };
}

describe("headers", () => {
  test("beyond the limit: 431 in the dialect's words, and the next request is served", async () => {
    await using h = harness();
    const headers = { "x-long": "a".repeat(DEFAULT_LIMITS.headerBytes) };
    const chat = await h.post("/v1/chat/completions", CHAT, { headers });
    expect(chat.status).toBe(431);
    expect(at(await chat.json(), "error", "type")).toBe("invalid_request_error");
    const messages = await h.post("/v1/messages", CHAT, { headers });
    expect(messages.status).toBe(431);
    expect(at(await messages.json(), "type")).toBe("error");
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(200);
  });

  test("far beyond: the socket layer answers 431 by itself", async () => {
    await using h = harness();
    const reply = await fetch(`${h.url}/health`, { headers: { "x-long": "a".repeat(200_000) } });
    expect(reply.status).toBe(431);
    expect((await fetch(`${h.url}/health`)).status).toBe(200);
  });

  test("many small ones count as well", async () => {
    await using h = harness(undefined, { limits: { ...DEFAULT_LIMITS, headerBytes: 500 } });
    const headers = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`x-${i}`, "abc"]));
    expect((await fetch(`${h.url}/health`, { headers })).status).toBe(431);
  });
});

describe("bodies", () => {
  const slow = { ...DEFAULT_LIMITS, bodyMs: 60, bodyBytesPerSecond: 1e6 };

  test.each(["/v1/chat/completions", "/v1/messages"])("%s: one that does not arrive is a 408", async (path) => {
    await using h = harness(undefined, { limits: slow });
    const { socket, closed, text } = await socketTo(h.port);
    socket.write(`POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"messages"`);
    await until(() => text().includes("\r\n\r\n"));
    expect(text()).toStartWith("HTTP/1.1 408 ");
    expect(text()).toContain("did not arrive in time");
    socket.end();
    await closed;
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(200);
  });

  test("a large one that keeps coming is waited for", async () => {
    await using h = harness(undefined, { limits: { ...slow, bodyBytesPerSecond: 1000 } });
    const { socket, text } = await socketTo(h.port);
    const body = JSON.stringify({ ...CHAT, user: "x".repeat(1000) });
    const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n`;
    socket.write(`${head}Content-Length: ${body.length}\r\n\r\n`);
    for (let at = 0; at < body.length; at += 200) {
      socket.write(body.slice(at, at + 200));
      await Bun.sleep(30);
    }
    await until(() => text().includes("\r\n\r\n"));
    expect(text()).toStartWith("HTTP/1.1 200 ");
    socket.end();
  });

  test("nested too deeply: 400 on every route with a body, also in fields that nobody reads", async () => {
    await using h = harness();
    const deep = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
    for (const path of ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"]) {
      const prompt =
        path === "/v1/responses" ? '"input":"x"' : '"prompt":"x","messages":[{"role":"user","content":"x"}]';
      const body = (levels: number) => `{${prompt},"max_tokens":2,"other":${deep(levels)}}`;
      const reply = await h.post(path, body(500));
      expect({ path, status: reply.status }).toEqual({ path, status: 400 });
      expect(JSON.stringify(await reply.json())).toContain("nested deeper");
      const flat = await h.post(path, body(30));
      expect({ path, status: flat.status, text: await flat.text() }).toMatchObject({ path, status: 200 });
    }
  });
});

test("requests at once are bounded: 503 with Retry-After, and places come back", async () => {
  const limits = { ...DEFAULT_LIMITS, requests: 3 };
  await using h = harness(() => writes("", { ids: [97], endless: true, stepMs: 5 }), { limits, maxBatch: 8 });
  const clients = [1, 2, 3].map(() => new AbortController());
  for (const client of clients) {
    void h.post("/v1/chat/completions", CHAT, { signal: client.signal }).catch(() => undefined);
  }
  await until(() => h.engine.active === 3);
  const refused = await fetch(`${h.url}/health`);
  expect(refused.status).toBe(503);
  expect(refused.headers.get("retry-after")).toBe("1");
  expect(at(await refused.json(), "error", "type")).toBe("service_unavailable");
  for (const client of clients) client.abort();
  await until(() => h.engine.active === 0);
  expect((await fetch(`${h.url}/health`)).status).toBe(200);
});

describe("clients that do not read", () => {
  const limits = { ...DEFAULT_LIMITS, stallMs: 150 };
  // Long frames, so that a socket is full soon.
  const FLOOD = () => writes("", { ids: [...Buffer.from("x".repeat(4000))], endless: true, perStep: 4000, stepMs: 1 });
  const BODY = JSON.stringify({ ...CHAT, stream: true, max_tokens: 1e9, return_token_ids: true });

  test("a stream that nobody reads is cut, its row cancelled, its connection ended", async () => {
    // With one request at once allowed, `/health` tells whether the stream still holds its connection.
    await using h = harness(FLOOD, { limits: { ...limits, requests: 1 }, maxTokensCap: 1e9 });
    Object.assign(h.engine.status, { model: { ...h.engine.model, contextWindow: 1e9 } });
    const socket = await Bun.connect({
      hostname: "127.0.0.1",
      port: h.port,
      socket: { data: (own) => own.pause(), error: () => undefined },
    });
    const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
    socket.write(`${head}Content-Length: ${BODY.length}\r\n\r\n${BODY}`);
    await until(() => h.engine.active === 1);
    expect((await fetch(`${h.url}/health`)).status).toBe(503);
    await until(() => h.engine.active === 0, 60_000);
    expect(h.engine.cancelled).toHaveLength(1);
    let status = 503;
    for (const deadline = performance.now() + 10_000; status === 503 && performance.now() < deadline; ) {
      await Bun.sleep(50);
      status = (await fetch(`${h.url}/health`)).status;
    }
    expect(status).toBe(200);
    socket.terminate();
  }, 90_000);

  test("one that reads slowly, but reads, gets everything in order", async () => {
    const text = Array.from({ length: 3000 }, (_, i) => `${i},`)
      .join("")
      .repeat(40);
    await using h = harness(() => writes(text, { perStep: 2000 }), { limits: { ...limits, stallMs: 3000 } });
    Object.assign(h.engine.status, { model: { ...h.engine.model, contextWindow: 1e9 } });
    const reply = await h.post("/v1/completions", { prompt: "x", stream: true, max_tokens: 1e6 });
    let all = "";
    const decoder = new TextDecoder();
    if (reply.body !== null) {
      for await (const chunk of reply.body) {
        all += decoder.decode(chunk, { stream: true });
        await Bun.sleep(1);
      }
    }
    const pieces = [...all.matchAll(/"text":"([^"]*)"/g)].map((match) => match[1]).join("");
    expect(pieces.length).toBe(Math.min(text.length, 32768));
    expect(text.startsWith(pieces)).toBe(true);
  }, 20_000);
});
