/**
 * Every recorded chat and responses body of a real client is accepted, reaches the template whole and is answered in
 * the right shape, streamed and not (the Messages ones are Anthropic's tests').
 */
import { describe, expect, test } from "bun:test";
import { type ClientFixture, clientFixtures } from "./client-fixtures.ts";
import { at, dataLines, type Harness, harness } from "./harness.ts";
import { SCRIPTED_MODEL, ScriptedEngine, writes } from "./scripted-engine.ts";

const ANSWER = "Sure — it says “stub-ok”.";

/** A server whose window holds an agent's prompt. */
function agentsServer(): Harness {
  const script = () => writes(ANSWER, { perStep: 3 });
  return harness(script, {}, new ScriptedEngine(script, { ...SCRIPTED_MODEL, contextWindow: 200_000 }));
}

async function sent(h: Harness, { path, headers, body }: ClientFixture, stream: boolean): Promise<string> {
  const reply = await h.post(path, { ...body, stream }, { headers: { ...headers } });
  const text = await reply.text();
  expect([reply.status, reply.status === 200 ? "" : text]).toEqual([200, ""]);
  expect(reply.headers.get("content-type")).toStartWith(stream ? "text/event-stream" : "application/json");
  return text;
}

const CHAT = clientFixtures("/chat/completions");
const RESPONSES = clientFixtures("/responses");

test("there are some of each", () => {
  expect([CHAT.length, RESPONSES.length].map((count) => count >= 3)).toEqual([true, true]);
});

describe.each(CHAT.map((fixture) => [fixture.name, fixture] as const))("%s", (_name, fixture) => {
  test("streamed as the client asked", async () => {
    await using h = agentsServer();
    const chunks = dataLines(await sent(h, fixture, true));
    expect(chunks.pop()).toBe("[DONE]");
    const usage = chunks.pop();
    expect(at(usage, "choices")).toEqual([]);
    expect(at(usage, "usage", "completion_tokens")).toBe(Buffer.byteLength(ANSWER) + 1);
    expect(new Set(chunks.map((chunk) => at(chunk, "id"))).size).toBe(1);
    expect(chunks.map((chunk) => at(chunk, "choices", 0, "delta", "content") ?? "").join("")).toBe(ANSWER);
    const finishes = chunks
      .map((chunk) => at(chunk, "choices", 0, "finish_reason"))
      .filter((reason) => reason !== null);
    expect(finishes).toEqual(["stop"]);
  });

  test("whole", async () => {
    await using h = agentsServer();
    const answer: unknown = JSON.parse(await sent(h, fixture, false));
    expect(at(answer, "model")).toBe(at(fixture.body, "model"));
    expect(at(answer, "choices", 0, "message", "content")).toBe(ANSWER);
    expect(h.engine.requests[0]?.maxNewTokens).toBe(8192);
  });

  test("all of it reaches the template", async () => {
    await using h = agentsServer();
    await sent(h, fixture, false);
    const [conversation] = h.text.conversations;
    expect(conversation?.messages.length).toBe(Number(at(fixture.body, "messages", "length")));
    expect(conversation?.messages[0]).toMatchObject({
      role: "system",
      content: at(fixture.body, "messages", 0, "content"),
    });
    expect(conversation?.messages[1]).toMatchObject({ role: "user", content: "run echo" });
    expect(conversation?.tools?.map(({ name }) => name)).toEqual(["read", "bash", "edit", "write"]);
  });
});

describe.each(RESPONSES.map((fixture) => [fixture.name, fixture] as const))("%s", (_name, fixture) => {
  test("streamed as the client asked: the item when it is done, the end with its usage", async () => {
    await using h = agentsServer();
    const text = await sent(h, fixture, true);
    const events = dataLines(text.replaceAll(/^event: .*\n/gm, ""));
    expect(at(events[0], "type")).toBe("response.created");
    const done = events.filter((event) => at(event, "type") === "response.output_item.done");
    expect(done.map((event) => at(event, "item", "content", 0, "text"))).toEqual([ANSWER]);
    const last = events.at(-1);
    expect(at(last, "type")).toBe("response.completed");
    expect(at(last, "response", "usage", "output_tokens")).toBe(Buffer.byteLength(ANSWER) + 1);
  });

  test("whole", async () => {
    await using h = agentsServer();
    const answer: unknown = JSON.parse(await sent(h, fixture, false));
    expect(at(answer, "output", 0, "content", 0, "text")).toBe(ANSWER);
    expect(at(answer, "status")).toBe("completed");
    // What asks for no limit gets the cap.
    expect(h.engine.requests[0]?.maxNewTokens).toBe(at(fixture.body, "max_output_tokens") === undefined ? 32768 : 8192);
  });
});

describe("an agent's turn after a call", () => {
  test.each([
    ["pi.openai.tool-result", CHAT, "bash", '{"command":"echo stub-ok"}'],
    ["codex.tool-result", RESPONSES, "exec_command", '{"cmd":"echo stub-ok"}'],
  ] as const)("%s: the call and its result are in the prompt", async (name, fixtures, tool, args) => {
    await using h = agentsServer();
    const fixture = fixtures.find((one) => one.name === name);
    if (fixture === undefined) throw new Error(`no fixture ${name}`);
    await sent(h, fixture, false);
    const messages = h.text.conversations[0]?.messages ?? [];
    expect(messages.slice(-2)).toMatchObject([
      { role: "assistant", content: "", toolCalls: [{ id: "call_1", name: tool, arguments: args }] },
      { role: "tool", toolCallId: "call_1" },
    ]);
  });

  test("codex: functions inside a namespace are given to the model, the service's own tools are not", async () => {
    await using h = agentsServer();
    const fixture = RESPONSES.find((one) => one.name === "codex.turn1");
    if (fixture === undefined) throw new Error("no fixture");
    await sent(h, fixture, false);
    const names = h.text.conversations[0]?.tools?.map(({ name }) => name) ?? [];
    expect(names).toContain("exec_command");
    expect(names).toContain("spawn_agent");
    expect(names).not.toContain("multi_agent_v1");
    expect(names.some((name) => name.includes("web_search"))).toBe(false);
    expect(h.text.conversations[0]?.messages.map(({ role }) => role)).toEqual([
      "developer",
      "developer",
      "user",
      "user",
    ]);
  });
});
