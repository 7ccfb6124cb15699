/** Every recorded Messages body of a real client is accepted, reaches the prompt and is answered in the right shape. */
import { describe, expect, test } from "bun:test";
import { type ClientFixture, clientFixtures } from "../client-fixtures.ts";
import { at } from "../harness.ts";
import { accumulated, streamEvents } from "./events.ts";
import { type TemplateServer, templateServer, WINDOW } from "./template-server.ts";

const ANSWER = "Sure — it says “stub-ok”.";
const MESSAGES = clientFixtures("/messages");
const COUNTS = clientFixtures("/messages/count_tokens");

test("there are some of each", () => {
  expect([MESSAGES.length, COUNTS.length].map((count) => count >= 2)).toEqual([true, true]);
});

async function sent(server: TemplateServer, { path, headers, body }: ClientFixture, change: object = {}) {
  const reply = await server.post(path, { ...body, ...change }, headers);
  const text = await reply.text();
  expect([reply.status, reply.status === 200 ? "" : text]).toEqual([200, ""]);
  expect(reply.headers.get("request-id")).toMatch(/^req_[0-9a-f]+$/);
  return { type: reply.headers.get("content-type") ?? "", text };
}

/** Whether this build holds an answer to a format; without that a body with one is refused by name. */
async function holdsFormats(): Promise<boolean> {
  await using server = templateServer(["{}"]);
  const format = { type: "json_schema", schema: { type: "object" } };
  const messages = [{ role: "user", content: "hi" }];
  const reply = await server.post("/v1/messages", { messages, output_config: { format } });
  if (reply.status !== 200) expect(await reply.text()).toContain("output_config.format 'json_schema' is not supported");
  return reply.status === 200;
}

const FORMATS = await holdsFormats();
const hasFormat = ({ body }: ClientFixture) => at(body, "output_config", "format") !== undefined;

describe.each(MESSAGES.map((fixture) => [fixture.name, fixture] as const))("%s", (_name, fixture) => {
  const answered = test.skipIf(hasFormat(fixture) && !FORMATS);

  answered("as the client sent it", async () => {
    await using server = templateServer([ANSWER]);
    const { type, text } = await sent(server, fixture);
    const streams = fixture.body.stream === true;
    expect(type).toStartWith(streams ? "text/event-stream" : "application/json");
    const message: unknown = streams ? accumulated(streamEvents(text)) : JSON.parse(text);
    expect(at(message, "content")).toEqual([{ type: "text", text: ANSWER }]);
    expect([at(message, "stop_reason"), at(message, "stop_sequence")]).toEqual(["end_turn", null]);
    if (streams) expect(at(streamEvents(text)[0]?.data, "message", "model")).toBe(fixture.body.model);
    const asked = server.engine.requests[0];
    expect(asked?.maxNewTokens).toBe(Math.min(Number(fixture.body.max_tokens), 32_768, WINDOW));
  });

  answered("in the other form, and counted", async () => {
    await using server = templateServer([ANSWER]);
    const { text } = await sent(server, fixture, { stream: false });
    const usage = at(JSON.parse(text), "usage");
    const counted = await sent(server, { ...fixture, path: "/v1/messages/count_tokens?beta=true" });
    expect(at(usage, "input_tokens")).toBeNumber();
    const prompt = Number(at(usage, "input_tokens")) + Number(at(usage, "cache_read_input_tokens"));
    expect(JSON.parse(counted.text)).toEqual({ input_tokens: prompt });
    const asked = server.promptOf(0);
    expect(asked).not.toContain("billing-header");
    expect(asked).not.toContain("DeferredToolPlaceholder");
    for (const role of ["system", "user"]) expect(asked).toContain(`<|im_start|>${role}\n`);
    expect(asked).toEndWith("<|im_start|>assistant\n");
  });
});

test("count_tokens, as Claude Code asks 26 times at once while an answer is being written", async () => {
  await using server = templateServer([ANSWER], { maxBatch: 1, maxQueue: 0 }, { stepMs: 50, endless: true });
  const gone = new AbortController();
  const writing = fetch(`${server.url}/v1/messages`, {
    method: "POST",
    body: JSON.stringify({ messages: [{ role: "user", content: "hi" }], stream: true }),
    signal: gone.signal,
  });
  await writing;
  const start = performance.now();
  const burst = Array.from({ length: 26 }, (_, i) => COUNTS[i % COUNTS.length]);
  const counts = await Promise.all(
    burst.map(async (fixture) => {
      if (fixture === undefined) throw new Error("no fixture");
      return Number(at(JSON.parse((await sent(server, fixture)).text), "input_tokens"));
    }),
  );
  expect(performance.now() - start).toBeLessThan(1000);
  expect(new Set(counts).size).toBe(COUNTS.length);
  expect(server.engine.requests.length).toBe(1);
  gone.abort();
});
