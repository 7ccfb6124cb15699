/** The stream of events: replay, rounds, progress, requests, silence, and its end. */
import { describe, expect, test } from "bun:test";
import type { GenerateEvent } from "../../../src/engine/client.ts";
import type { GenerateRequest } from "../../../src/engine/protocol.ts";
import { DEFAULT_LIMITS } from "../../../src/server/http/limits.ts";
import { type AdminHarness, adminHarness, CHAT } from "../admin/admin-harness.ts";
import { at, until } from "../harness.ts";
import { writes } from "../scripted-engine.ts";

interface Heard {
  readonly name: string;
  readonly data: unknown;
}

/** Listens until it is left; what came is in `heard`. */
async function listen(h: AdminHarness, query = "") {
  const client = new AbortController();
  const reply = await h.get(`/events${query}`, { signal: client.signal });
  const heard: Heard[] = [];
  const comments: string[] = [];
  const over = (async () => {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of reply.body ?? []) {
      const frames = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
      rest = frames.pop() ?? "";
      for (const frame of frames) {
        const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(frame) ?? [];
        if (name !== undefined && data !== undefined) heard.push({ name, data: JSON.parse(data) });
        else comments.push(frame);
      }
    }
  })().catch(() => undefined);
  return { reply, heard, comments, over, leave: () => client.abort() };
}

const named = (heard: readonly Heard[], name: string) => heard.filter((event) => event.name === name);

/** Rounds and a prompt of several chunks. */
function working(h: AdminHarness): void {
  const inner = h.engine.generate.bind(h.engine);
  h.engine.generate = async function* (request: GenerateRequest, signal?: AbortSignal) {
    let n = 0;
    for await (const event of inner(request, signal)) {
      if (event.type === "prefill") {
        yield { type: "prefill", processed: 2, total: event.total };
        yield event;
      } else if (event.type === "tokens") {
        const round = { source: "plain", drafted: 0, accepted: 0, cap: null, ms: 1 };
        yield { ...event, round: n++ === 0 ? null : round } as GenerateEvent;
      } else yield event;
    }
  };
}

describe("events", () => {
  test("a request from the queue to its end, with its prompt's progress and its rounds", async () => {
    await using h = await adminHarness(() => writes("abcd"));
    working(h);
    const events = await listen(h);
    expect(events.reply.headers.get("content-type")).toBe("text/event-stream");
    await until(() => events.heard.length > 0);
    expect(events.heard[0]).toMatchObject({ name: "stats", data: { rounds: 0 } });
    const answer: unknown = await (await h.post("/v1/chat/completions", CHAT)).json();
    const req = at(answer, "x_mlx_dspark", "req");
    await until(() => events.heard.some(({ data }) => at(data, "type") === "finished"));
    expect(named(events.heard, "request").map(({ data }) => data)).toMatchObject([
      { type: "queued", req, api: "chat" },
      { type: "started", req },
      { type: "finished", req, outcome: "stop" },
    ]);
    expect(named(events.heard, "prefill").map(({ data }) => data)).toMatchObject([
      { type: "prefill", req, mode: "baseline", processed: 2, total: 9 },
      { type: "prefill", req, processed: 9, total: 9, done: true },
    ]);
    expect(named(events.heard, "round").map(({ data }) => at(data, "i"))).toEqual([0, 1, 2, 3]);
    expect(named(events.heard, "round").every(({ data }) => at(data, "req") === req)).toBe(true);
    events.leave();
    await events.over;
  });

  test("the last 32 rounds are replayed first, then the statistics", async () => {
    await using h = await adminHarness(() => writes("x".repeat(50)));
    working(h);
    await h.post("/v1/completions", { prompt: "x" });
    const events = await listen(h);
    await until(() => named(events.heard, "stats").length > 0);
    expect(named(events.heard, "round")).toHaveLength(32);
    expect(events.heard.at(32)).toMatchObject({ name: "stats", data: { rounds: 50 } });
    expect(events.heard[31]?.data).toMatchObject({ i: 49 });
    events.leave();
  });

  test("batch_ms collects rounds; other values than 20 to 1000 are a 400", async () => {
    await using h = await adminHarness(() => writes("abcdefgh", { stepMs: 2 }));
    working(h);
    for (const bad of ["19", "1001", "x", "1e2", ""]) {
      expect((await h.get(`/events?batch_ms=${bad}`)).status).toBe(400);
    }
    const events = await listen(h, "?batch_ms=50");
    await h.post("/v1/completions", { prompt: "x" });
    const rounds = () => named(events.heard, "rounds").flatMap(({ data }) => at(data, "rounds") ?? []);
    await until(() => rounds().length === 8);
    expect(named(events.heard, "round")).toHaveLength(0);
    expect(named(events.heard, "rounds").length).toBeLessThan(8);
    events.leave();
  });

  test("silence has a comment a second", async () => {
    await using h = await adminHarness();
    const events = await listen(h);
    await until(() => events.comments.length > 0, 3000);
    expect(events.comments[0]).toBe(": keepalive");
    events.leave();
  });

  test("they end when the model goes and when the server stops", async () => {
    const h = await adminHarness();
    const first = await listen(h);
    await h.post("/admin/load", { model: "b" });
    await first.over;
    const second = await listen(h);
    await h[Symbol.asyncDispose]();
    await second.over;
  });

  test("listeners who have left hold no place", async () => {
    await using h = await adminHarness(undefined, { limits: { ...DEFAULT_LIMITS, requests: 2 } });
    for (let i = 0; i < 5; i++) {
      const events = await listen(h);
      expect(events.reply.status).toBe(200);
      events.leave();
      await events.over;
      await Bun.sleep(20);
    }
    expect((await h.get("/health")).status).toBe(200);
  });
});
