/**
 * Thousands of malformed requests over every route: each has a well-formed answer of its dialect, which is as `/openapi` says,
 * none is a 500, and the server serves the next one. `FUZZ_RUNS=50000`, as in CI, for more of them, `FUZZ_SEED` for others.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { openApiOf, Published } from "../support/published.ts";
import { adminHarness, CHAT } from "./admin/admin-harness.ts";
import { fuzzRequest } from "./fuzz-bodies.ts";
import { harness } from "./harness.ts";
import { writes } from "./scripted-engine.ts";
import { expectWellFormed } from "./well-formed.ts";

const SEED = Number(process.env.FUZZ_SEED ?? "20261129");
const RUNS = Number(process.env.FUZZ_RUNS ?? "4000");
/** What a request may be answered with; 409 and 503 come of loads and unloads that the requests themselves ask for. */
const STATUSES = [200, 204, 400, 404, 405, 409, 503];

test(
  `${RUNS} malformed requests`,
  async () => {
    await using h = await adminHarness(() => writes("ok"));
    const seen = new Map<number, number>();
    const byRoute = new Set<string>();
    const published = new Published(await openApiOf(h.url));
    await fc.assert(
      fc.asyncProperty(fuzzRequest, async ({ method, path, headers, body }) => {
        const reply = await h.get(path, { method, headers, ...(body !== null && { body }) });
        const text = await reply.text();
        seen.set(reply.status, (seen.get(reply.status) ?? 0) + 1);
        const streamed = reply.headers.get("content-type")?.startsWith("text/event-stream") === true;
        byRoute.add(`${path.replace(/\?.*$/, "")} ${streamed ? "stream" : reply.status}`);
        expect(STATUSES).toContain(reply.status);
        expectWellFormed(path, reply, text);
        const listed = published.operationOf(method, path);
        if (listed !== null) expect(published.faults(method, listed, reply, text)).toEqual([]);
        // An unload was asked for and done: the next request should meet a model.
        if (h.slot.status.state !== "ready") expect((await h.post("/admin/load", { model: "first" })).status).toBe(200);
      }),
      { numRuns: RUNS, seed: SEED },
    );
    // The generator must reach all sides, or it proves nothing.
    expect(seen.get(200) ?? 0).toBeGreaterThan(RUNS / 20);
    expect(seen.get(400) ?? 0).toBeGreaterThan(RUNS / 4);
    for (const status of [404, 405]) expect(seen.get(status) ?? 0).toBeGreaterThan(0);
    const dialects = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"];
    for (const route of dialects)
      for (const how of ["200", "400", "stream"]) expect([...byRoute]).toContain(`${route} ${how}`);
    for (const route of ["/v1/messages/count_tokens", "/admin/load", "/admin/load/cancel", "/admin/unload"]) {
      for (const how of ["200", "400"]) expect([...byRoute]).toContain(`${route} ${how}`);
    }
    expect(h.log).toEqual([]);
    expect(h.engine.active).toBe(0);
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(200);
  },
  60_000 + RUNS * 20,
);

test("deeply nested JSON is refused or ignored, not fatal", async () => {
  await using h = harness();
  for (const depth of [1_000, 200_000]) {
    const deep = "[".repeat(depth) + "]".repeat(depth);
    for (const field of ["metadata", "messages", "chat_template_kwargs", "tools", "tool_choice", "response_format"]) {
      const reply = await h.post(
        "/v1/chat/completions",
        `{"messages":[{"role":"user","content":"x"}],"${field}":${deep}}`,
      );
      expect([200, 400]).toContain(reply.status);
      await reply.text();
    }
  }
});

test("odd request lines and headers get an answer or a closed socket, and the server lives", async () => {
  await using h = harness();
  for (const target of [
    "/%E0%A4%A",
    "//v1/models",
    "/v1/models/%00",
    "/v1/../etc/passwd",
    "/?%",
    `/${"a".repeat(8000)}`,
  ]) {
    const reply = await fetch(h.url + target).catch(() => null);
    if (reply !== null) expect(reply.status).toBeLessThan(500);
  }
  expect((await fetch(`${h.url}/health`)).status).toBe(200);
});
