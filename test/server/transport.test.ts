/** Rules that hold for every route: paths, methods, Host, CORS, keys, bodies, errors (http-openai.md §1, §7, §8). */
import { describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { RequestError, toRequestError, withoutPaths } from "../../src/server/errors.ts";
import { ListenError, startServer } from "../../src/server/listen.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../src/server/options.ts";
import { at, harness } from "./harness.ts";
import { ScriptedEngine, writes } from "./scripted-engine.ts";

const CHAT = { messages: [{ role: "user", content: "hi" }] };

describe("paths and methods", () => {
  test.each(["/v1/chat/completions", "/chat/completions", "/v1/chat/completions/", "/chat/completions?beta=true"])(
    "%s answers",
    async (path) => {
      await using h = harness();
      expect((await h.post(path, CHAT)).status).toBe(200);
    },
  );

  test.each(["/v1/models", "/models", "/v1/models/", "/models?limit=1000"])("%s answers", async (path) => {
    await using h = harness();
    const reply = await fetch(h.url + path);
    expect(reply.status).toBe(200);
    expect(at(await reply.json(), "data", 0, "id")).toBe("scripted-1b");
  });

  test("an unknown route is 404 in the envelope", async () => {
    await using h = harness();
    const reply = await h.post("/v1/no-such-route", {});
    expect(reply.status).toBe(404);
    expect(reply.headers.get("content-type")).toContain("application/json");
    expect(await reply.json()).toEqual({
      error: { message: "unknown route /v1/no-such-route", type: "not_found", param: null, code: "not_found" },
    });
  });

  test.each([
    ["GET", "/v1/chat/completions", "POST"],
    ["PUT", "/completions", "POST"],
    ["DELETE", "/v1/models", "GET"],
    ["POST", "/v1/models/x", "GET"],
    ["POST", "/health", "GET"],
    ["PATCH", "/", "GET"],
  ])("%s %s is 405 and names %s", async (method, path, right) => {
    await using h = harness();
    const reply = await fetch(h.url + path, { method });
    expect(reply.status).toBe(405);
    expect(reply.headers.get("allow")).toContain(right);
    expect(at(await reply.json(), "error", "type")).toBe("invalid_request_error");
  });

  test("HEAD is 200 and empty anywhere, without a key", async () => {
    await using h = harness(undefined, { apiKey: "k" });
    for (const path of ["/", "/v1/models", "/nowhere"]) {
      const reply = await fetch(h.url + path, { method: "HEAD" });
      expect(reply.status).toBe(200);
      expect(reply.headers.get("content-length")).toBe("0");
    }
  });

  test("every reply names the server; the root and the API page exist", async () => {
    await using h = harness();
    const root = await fetch(h.url);
    expect(root.headers.get("server")).toBe("mlx-dspark/9.9.9");
    expect(await root.json()).toEqual({ name: "mlx-dspark", version: "9.9.9", docs: "/openapi" });
    const page = await (await fetch(`${h.url}/openapi`)).text();
    expect(page).toContain("<title>mlx-dspark API</title>");
    expect(page).not.toMatch(/src="http|href="http/);
    const document: unknown = await (await fetch(`${h.url}/openapi/json`)).json();
    const properties = [
      "paths",
      "/v1/chat/completions",
      "post",
      "requestBody",
      "content",
      "application/json",
      "schema",
    ];
    expect(at(document, ...properties, "properties", "temperature", "maximum")).toBe(2);
    const paths = Object.keys(Object(at(document, "paths")));
    for (const path of ["chat/completions", "completions", "responses", "messages", "models", "models/{id}"]) {
      expect(paths).toContain(`/v1/${path}`);
      // The same route without `/v1` is not listed twice.
      expect(paths).not.toContain(`/${path}`);
    }
  });
});

describe("origin and Host", () => {
  test("preflight from a loopback page gets what it asked for, without a key", async () => {
    await using h = harness(undefined, { apiKey: "k" });
    const reply = await fetch(`${h.url}/v1/chat/completions`, {
      method: "OPTIONS",
      headers: {
        origin: "http://localhost:3000",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,authorization,x-api-key,anthropic-version",
      },
    });
    expect(reply.status).toBe(204);
    expect(await reply.text()).toBe("");
    expect(reply.headers.get("access-control-allow-origin")).toBe("http://localhost:3000");
    expect(reply.headers.get("vary")).toContain("Origin");
    expect(reply.headers.get("access-control-allow-methods")).toBe("GET, POST, OPTIONS");
    expect(reply.headers.get("access-control-allow-headers")).toBe(
      "content-type,authorization,x-api-key,anthropic-version",
    );
  });

  test.each([
    ["http://127.0.0.1:5173", [], "http://127.0.0.1:5173"],
    ["https://[::1]", [], "https://[::1]"],
    ["https://evil.example", [], null],
    ["https://localhost.evil.example", [], null],
    ["null", [], null],
    ["https://app.example", ["https://app.example"], "https://app.example"],
    ["https://evil.example", ["https://app.example"], null],
    ["https://evil.example", ["*"], "*"],
  ])("origin %s with --cors-origin %p may read: %p", async (origin, corsOrigins, allowed) => {
    await using h = harness(undefined, { corsOrigins });
    const reply = await fetch(`${h.url}/health`, { headers: { origin } });
    expect(reply.headers.get("access-control-allow-origin")).toBe(allowed);
  });

  test("errors and streams carry the header too, or the page cannot read them", async () => {
    await using h = harness();
    const headers = { origin: "http://localhost:1", "content-type": "application/json" };
    const bad = await h.post("/v1/chat/completions", {}, { headers });
    const stream = await h.post("/v1/chat/completions", { ...CHAT, stream: true }, { headers });
    const none = await h.post("/v1/nowhere", {}, { headers });
    for (const reply of [bad, stream, none]) {
      expect(reply.headers.get("access-control-allow-origin")).toBe("http://localhost:1");
      await reply.text();
    }
  });

  test.each([
    ["localhost:1", [], 200],
    ["127.0.0.1", [], 200],
    ["[::1]:8080", [], 200],
    ["evil.example", [], 403],
    ["localhost.evil.example:80", [], 403],
    ["box.lan:8080", ["box.lan"], 200],
    ["a", ["a"], 200],
  ])("Host %s with --allow-host %p: %i", async (host, allowHosts, status) => {
    await using h = harness(undefined, { allowHosts });
    const reply = await raw(h.port, `GET /health HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect(reply).toStartWith(`HTTP/1.1 ${status} `);
  });
});

describe("keys", () => {
  test.each([
    [{ authorization: "Bearer sesame" }, 200],
    [{ authorization: "bearer sesame" }, 200],
    [{ "x-api-key": "sesame" }, 200],
    [{ authorization: "Bearer no", "x-api-key": "sesame" }, 200],
    [{ authorization: "Bearer sesam" }, 401],
    [{ authorization: "Bearer sesamesame" }, 401],
    [{ authorization: "Basic sesame" }, 401],
    [{ "x-api-key": "" }, 401],
    [{}, 401],
  ])("%p: %i", async (headers: Record<string, string>, status) => {
    await using h = harness(undefined, { apiKey: "sesame" });
    const reply = await fetch(`${h.url}/v1/models`, { headers });
    expect(reply.status).toBe(status);
    const body: unknown = await reply.json();
    if (status === 401) {
      expect(body).toEqual({
        error: { message: "invalid api key", type: "authentication_error", param: null, code: "invalid_api_key" },
      });
    }
  });

  test("health needs none; a route that does not exist does", async () => {
    await using h = harness(undefined, { apiKey: "k" });
    expect((await fetch(`${h.url}/health`)).status).toBe(200);
    expect((await fetch(`${h.url}/nowhere`)).status).toBe(401);
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(401);
  });
});

describe("bodies", () => {
  test.each([
    ["a list", "[]"],
    ["null", "null"],
    ["a string", '"x"'],
    ["nothing", ""],
    ["NaN", '{"messages":[{"role":"user","content":"hi"}],"temperature":NaN}'],
    ["cut off", '{"messages":[{"role":"user"'],
    [
      "bad UTF-8",
      Buffer.from("eyJtZXNzYWdlcyI6W3sicm9sZSI6InVzZXIiLCJjb250ZW50IjoiY2Fm6SJ9XSwibWF4X3Rva2VucyI6NH0=", "base64"),
    ],
  ])("%s is a 400 in the envelope", async (_name, body) => {
    await using h = harness();
    const reply = await h.post("/v1/chat/completions", body);
    expect(reply.status).toBe(400);
    expect(at(await reply.json(), "error", "type")).toBe("invalid_request_error");
  });

  test("a number that is not finite after parsing names its field", async () => {
    await using h = harness();
    const body = '{"messages":[{"role":"user","content":"hi"}],"max_tokens":4,"temperature":1e999}';
    const reply = await h.post("/v1/chat/completions", body);
    expect(reply.status).toBe(400);
    expect(at(await reply.json(), "error", "param")).toBe("temperature");
  });

  test("the content type does not matter, and a body may come in chunks", async () => {
    await using h = harness();
    const text = JSON.stringify(CHAT);
    const plain = await h.post("/v1/chat/completions", text, { headers: { "content-type": "text/plain" } });
    expect(plain.status).toBe(200);
    const form = { "content-type": "application/x-www-form-urlencoded" };
    expect((await h.post("/v1/chat/completions", text, { headers: form })).status).toBe(200);
    const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    const bare = await raw(h.port, `${head}Content-Length: ${text.length}\r\n\r\n${text}`);
    expect(bare).toStartWith("HTTP/1.1 200 ");
    const size = text.length.toString(16);
    const chunked = await raw(h.port, `${head}Transfer-Encoding: chunked\r\n\r\n${size}\r\n${text}\r\n0\r\n\r\n`);
    expect(chunked).toStartWith("HTTP/1.1 200 ");
  });

  test("compressed bodies are 415", async () => {
    await using h = harness();
    const headers = { "content-encoding": "gzip" };
    const reply = await h.post("/v1/chat/completions", Bun.gzipSync(JSON.stringify(CHAT)), { headers });
    expect(reply.status).toBe(415);
  });

  test("beyond the limit is 413, with and without a declared length, and the next request is served", async () => {
    await using h = harness(undefined, { maxBodyBytes: 1000 });
    const big = JSON.stringify({ ...CHAT, user: "x".repeat(2000) });
    const declared = await h.post("/v1/chat/completions", big);
    expect(declared.status).toBe(413);
    expect(at(await declared.json(), "error", "type")).toBe("request_too_large");
    const head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    const chunk = `${(2000).toString(16)}\r\n${"x".repeat(2000)}\r\n0\r\n\r\n`;
    expect(await raw(h.port, `${head}Transfer-Encoding: chunked\r\n\r\n${chunk}`)).toStartWith("HTTP/1.1 413 ");
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(200);
  });
});

describe("models and health", () => {
  test("the list serves both kinds of clients", async () => {
    await using h = harness();
    const list: unknown = await (await fetch(`${h.url}/v1/models`)).json();
    expect(list).toMatchObject({
      object: "list",
      has_more: false,
      first_id: "scripted-1b",
      last_id: "scripted-1b",
      data: [
        {
          object: "model",
          type: "model",
          owned_by: "mlx-dspark",
          display_name: "scripted-1b (mlx-dspark baseline)",
          context_length: 4096,
          max_output_tokens: 4096,
          x_mlx_dspark: { mode: "baseline", target: "/models/somewhere/scripted-1b", drafter: null },
        },
      ],
    });
    expect(Date.parse(String(at(list, "data", 0, "created_at")))).toBeGreaterThan(0);
    const one = await h.client.models.retrieve("scripted-1b");
    expect(one.id).toBe("scripted-1b");
    const none = await h.client.models.retrieve("other").catch((e: unknown) => e);
    expect(none).toBeInstanceOf(OpenAI.NotFoundError);
  });

  test("without a model: empty list, 503 with Retry-After, health says so", async () => {
    const engine = new ScriptedEngine(() => writes("x"));
    engine.status = { state: "no_model" };
    await using h = harness(undefined, {}, engine);
    expect(await (await fetch(`${h.url}/v1/models`)).json()).toEqual({
      object: "list",
      data: [],
      has_more: false,
      first_id: null,
      last_id: null,
    });
    const reply = await h.post("/v1/chat/completions", CHAT);
    expect(reply.status).toBe(503);
    expect(reply.headers.get("retry-after")).toBe("1");
    expect(at(await reply.json(), "error")).toMatchObject({ type: "service_unavailable", code: "model_not_ready" });
    expect(await (await fetch(`${h.url}/health`)).json()).toMatchObject({ status: "no_model", loading: false });
    engine.status = { state: "failed", error: { kind: "load", message: "no config.json in /home/me/models/x" } };
    const failed: unknown = await (await fetch(`${h.url}/health`)).json();
    expect(failed).toMatchObject({ status: "no_model", error: "no config.json in x" });
  });

  test("while loading: progress in health, 503 for generation; a bad body is still a 400", async () => {
    const engine = new ScriptedEngine(() => writes("x"));
    const counts = { bytesDone: 5, bytesTotal: 10, bytesPerSecond: 1 };
    const progress = { phase: "download" as const, fraction: 0.5, ...counts, detail: "" };
    engine.status = { state: "loading", progress, requested: "org/name" };
    await using h = harness(undefined, {}, engine);
    expect(await (await fetch(`${h.url}/health`)).json()).toMatchObject({
      status: "loading",
      loading: true,
      phase: "loading",
      download: { repo: "org/name", bytes_done: 5, bytes_total: 10 },
    });
    const reply = await h.post("/v1/completions", { prompt: "x" });
    expect(reply.status).toBe(503);
    expect(at(await reply.json(), "error", "message")).toContain("a model is loading");
    expect((await h.post("/v1/completions", {})).status).toBe(400);
  });

  test("ready: health tells the limits in force", async () => {
    await using h = harness(undefined, { maxBatch: 2, kvBits: 8 });
    expect(await (await fetch(`${h.url}/health/`)).json()).toMatchObject({
      status: "ok",
      model: "scripted-1b",
      mode: "baseline",
      target: "scripted-1b",
      context_window: 4096,
      max_output_tokens: 4096,
      max_batch: 2,
      kv_bits: 8,
      backend: "cpu",
      queue: { running: 0, waiting: 0 },
      version: "9.9.9",
      warnings: [
        { code: "load_note", level: "attention", message: "the template prints the time of day", action: null },
      ],
    });
  });
});

describe("socket", () => {
  test("a port that is in use is said at once, with the port", () => {
    const engine = new ScriptedEngine(() => writes("x"));
    const parts = { engine, text: () => null, options: DEFAULT_SERVER_OPTIONS, host: "127.0.0.1" };
    const first = startServer({ ...parts, port: 0 });
    try {
      expect(() => startServer({ ...parts, port: first.port })).toThrow(ListenError);
      expect(() => startServer({ ...parts, port: first.port })).toThrow(`port ${first.port}`);
    } finally {
      void first.stop(0);
    }
  });

  test("an unknown error shows nothing of itself; engine messages lose their paths", () => {
    const reply = toRequestError(new TypeError("x is not a function at /srv/app.ts"));
    expect(reply).toBeInstanceOf(RequestError);
    expect(reply.status).toBe(500);
    expect(reply.message).not.toContain("app.ts");
    expect(withoutPaths("cannot read /home/a b/x.json: gone\n  at f (/x/y.ts:1)")).not.toContain("/home");
    expect(withoutPaths("cannot map '/var/tmp/m/model.safetensors' (12 MB)")).toBe(
      "cannot map 'model.safetensors' (12 MB)",
    );
    expect(withoutPaths("repo org/name has 3/4 files, see https://x.example/a/b")).toBe(
      "repo org/name has 3/4 files, see https://x.example/a/b",
    );
  });
});

/** Sends bytes over a fresh socket and reads until the server closes it. */
async function raw(port: number, request: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
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
  socket.write(request);
  await Promise.race([promise, Bun.sleep(2000)]);
  socket.end();
  return Buffer.concat(chunks).toString();
}
