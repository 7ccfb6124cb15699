/** The shared HTTP cases against the compiled executable, on its own model: their rules are about text that means something. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { httpCases, runCase } from "../support/http-cases.ts";
import { PREDICATES } from "../support/http-predicates.ts";
import { fieldAt } from "../support/http-reply.ts";
import { repoRoot } from "../support/native.ts";
import { openApiOf, Published } from "../support/published.ts";
import { type RunningServer, requireExecutable, serve, temporaryCache } from "./executable.ts";

/** Rounds of the case whose memory is watched. */
const REPEATS = 20;
/** What may come and go with the moment of a reading; 20 leaked streams of this model would be far above it. */
const GROWTH_BYTES_MAX = 2 * 2 ** 20;

const cache = temporaryCache();
let server: RunningServer;

beforeAll(async () => {
  requireExecutable();
  server = await serve(cache.path, ["--max-batch", "2"]);
  await server.ready();
}, 300_000);
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  cache.remove();
});

const target = () => ({
  url: server.url,
  secrets: [repoRoot, cache.path],
  alive: () => server.child.exitCode === null,
});

for (const one of httpCases()) {
  test(one.name, async () => {
    await PREDICATES[one.name]?.(await runCase(one, target()));
  }, 120_000);
}

test("what its document promises", async () => {
  const published = new Published(await openApiOf(server.url));
  const judge = async (method: "get" | "post", path: string, body?: object) => {
    const init = { method, ...(body !== undefined && { body: JSON.stringify(body) }) };
    const reply = await fetch(server.url + path, init);
    expect(published.faults(method, path, reply, await reply.text())).toEqual([]);
    expect([path, reply.status]).toEqual([path, 200]);
  };
  const chat = { messages: [{ role: "user", content: "Count to ten." }], max_tokens: 24 };
  const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
  const format = { type: "json_schema", json_schema: { name: "one", schema } };
  const generations = [
    ["/v1/chat/completions", { ...chat, stream_options: { include_usage: true, include_speculation: true } }],
    ["/v1/chat/completions", { ...chat, response_format: format, logprobs: true, top_logprobs: 2 }],
    ["/v1/completions", { prompt: "One, two,", max_tokens: 24, logprobs: 2 }],
    ["/v1/responses", { input: "Count to ten.", max_output_tokens: 24 }],
    ["/v1/messages", chat],
  ] as const;
  for (const [path, body] of generations) {
    await judge("post", path, body);
    await judge("post", path, { ...body, stream: true });
  }
  await judge("post", "/v1/messages/count_tokens", chat);
  const readings = ["/", "/health", "/v1/models", "/metrics", "/machine", "/doctor", "/calibration", "/rounds"];
  for (const path of [...readings, "/admin/status", "/admin/models", "/admin/integrations"]) await judge("get", path);
}, 120_000);

test("clients that go away leave no memory behind", async () => {
  const one = httpCases().find((candidate) => candidate.name === "disconnect-frees-slot");
  if (one === undefined) throw new Error("the case is gone");
  const active = async () => {
    const metrics: unknown = await (await fetch(`${server.url}/metrics`)).json();
    return Number(fieldAt(metrics, ["memory", "active_bytes"]));
  };
  await runCase(one, target());
  const before = await active();
  for (let i = 0; i < REPEATS; i++) await runCase(one, target());
  expect((await active()) - before).toBeLessThan(GROWTH_BYTES_MAX);
}, 300_000);
