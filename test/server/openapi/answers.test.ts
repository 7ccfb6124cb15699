/** What the server answers is what `/openapi` says that it answers: every route, whole and streamed, well and not. */
import { expect, test } from "bun:test";
import type { ModelInfo } from "../../../src/engine/protocol.ts";
import { DEFAULT_LIMITS } from "../../../src/server/http/limits.ts";
import { openApiOf, Published } from "../../support/published.ts";
import { type AdminHarness, adminHarness, CHAT } from "../admin/admin-harness.ts";
import { at, until } from "../harness.ts";
import { SCRIPTED_MODEL, type Script, writes } from "../scripted-engine.ts";

const CALLS =
  '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call><tool_call>{"name":"g","arguments":{}}</tool_call>';
const SAID = `<think>Hm.</think>Let me look.${CALLS}`;

const DRAFTED: Script = writes("Hello, world.", {
  perStep: 2,
  round: { source: "drafter", drafted: 3, accepted: 1, cap: 4, ms: 2 },
  top: [
    [72, -0.1],
    [104, Number.NEGATIVE_INFINITY],
  ],
  stats: {
    ...{ mode: "dspark", drafted: 9, accepted: 4, acceptLengths: [2, 2, 3], lookupRounds: 1, cap: 4, decayRatio: 0.98 },
    grammar: {
      ...{
        kind: "json_schema",
        compileMs: 1.5,
        cached: false,
        maskedRows: 3,
        cutDrafts: 1,
        forcedTokens: 2,
        maskMs: 1,
      },
      relaxed: ["/properties/a"],
    },
  },
});

const FAILING: Script = writes("Hello", { failure: { after: 2, error: { kind: "internal", message: "broken" } } });

const DSPARK: ModelInfo = {
  ...SCRIPTED_MODEL,
  ...{ mode: "dspark", drafter: "scripted-drafter" },
  drafting: {
    ...{ maxDraft: "auto", lookupDrafts: true, confidenceThreshold: 0.3, drafterWindow: 512, drafterBytes: 100 },
    costs: {
      verify: { "1": 10, "5": 12 },
      drafter: { "4": 2 },
      overhead: 0.5,
      plain: 9,
      depth0: 512,
      depthSlope: null,
    },
  },
};

const FUNCTION = { type: "function", function: { name: "f", parameters: { type: "object" } } };
const FLAT = { type: "function", name: "f", description: "does", parameters: { type: "object" } };
const SPACE = { type: "namespace", name: "team", tools: [{ type: "function", name: "g" }] };
const MESSAGES_TOOLS = [{ name: "f", input_schema: { type: "object" } }, { name: "g" }];

/** What is asked of each dialect beside its prompt: body, and what the model writes. */
const ASKED: readonly (readonly [path: string, body: object, script: Script])[] = [
  ["/v1/chat/completions", CHAT, writes("Hello.")],
  ["/v1/chat/completions", { ...CHAT, tools: [FUNCTION] }, writes(SAID)],
  ["/v1/chat/completions", { ...CHAT, tools: [FUNCTION], tool_choice: "none" }, writes(CALLS)],
  ["/v1/chat/completions", { ...CHAT, logprobs: true, top_logprobs: 2, return_token_ids: true }, DRAFTED],
  ["/v1/chat/completions", { ...CHAT, stream_options: { include_usage: true, include_speculation: true } }, DRAFTED],
  ["/v1/chat/completions", { ...CHAT, n: 2, temperature: 1, max_tokens: 3, model: "mine" }, writes("Hello.")],
  ["/v1/chat/completions", { ...CHAT, stop: "lo" }, writes("Hello.")],
  ["/v1/chat/completions", { ...CHAT, seed: 1 }, FAILING],
  ["/v1/completions", { prompt: "x" }, writes("Hello.")],
  ["/v1/completions", { prompt: ["x", "y"], logprobs: 2, return_token_ids: true }, DRAFTED],
  ["/v1/completions", { prompt: "x", stream_options: { include_usage: true, include_speculation: true } }, DRAFTED],
  ["/v1/completions", { prompt: [1, 2], max_tokens: 2 }, writes("Hello.")],
  ["/v1/completions", { prompt: "x" }, FAILING],
  ["/v1/responses", { input: "x" }, writes("Hello.")],
  ["/v1/responses", { input: "x", instructions: "be", max_output_tokens: 4 }, writes("Hello.")],
  ["/v1/responses", { input: "x", tools: [FLAT, SPACE], reasoning: { effort: "high", summary: "auto" } }, writes(SAID)],
  ["/v1/responses", { input: "x", tools: [FLAT], tool_choice: { type: "function", name: "f" } }, writes(SAID)],
  ["/v1/responses", { input: "x", text: { format: { type: "text" } }, model: "mine" }, DRAFTED],
  ["/v1/responses", { input: "x" }, FAILING],
  ["/v1/messages", CHAT, writes("Hello.")],
  ["/v1/messages", { ...CHAT, tools: MESSAGES_TOOLS }, writes(SAID)],
  ["/v1/messages", { ...CHAT, thinking: { type: "disabled" }, model: "mine" }, writes(SAID)],
  ["/v1/messages", { ...CHAT, max_tokens: 3 }, DRAFTED],
  ["/v1/messages", { ...CHAT, stop_sequences: ["lo"] }, writes("Hello.")],
  ["/v1/messages", CHAT, FAILING],
];

/** The least that each takes. */
const GENERATING: readonly (readonly [path: string, body: object])[] = [
  ["/v1/chat/completions", CHAT],
  ["/v1/completions", { prompt: "x" }],
  ["/v1/responses", { input: "x" }],
  ["/v1/messages", CHAT],
  ["/v1/messages/count_tokens", CHAT],
];
const READING = ["/", "/health", "/v1/models", "/metrics", "/machine", "/doctor", "/admin/status", "/admin/models"];
const OF_MODEL = ["/calibration", "/rounds", "/events", "/admin/integrations"];

/** The judge, and requests that are judged by it; `path` may have a query. */
async function judged(h: AdminHarness) {
  const published = new Published(await openApiOf(h.url));
  const judge = async (method: string, path: string, reply: Response, text?: string) => {
    const listed = published.operationOf(method, path) ?? path;
    expect(published.faults(method, listed, reply, text ?? (await reply.text()))).toEqual([]);
    return reply.status;
  };
  return {
    published,
    judge,
    get: async (path: string, init?: RequestInit) => judge("get", path, await h.get(path, init)),
    post: async (path: string, body: object, init?: RequestInit) => judge("post", path, await h.post(path, body, init)),
  };
}

test("every answer is as the document says, and everything that it says is answered", async () => {
  const seen = new Set<string>();
  const promised = new Set<string>();
  const keep = (published: Published) => {
    for (const one of published.seen) seen.add(one);
    for (const one of published.promised) promised.add(one);
  };

  // A model that drafts: every route, whole and streamed.
  let script = writes("Hello.");
  {
    await using h = await adminHarness(() => script, {}, { model: DSPARK });
    const { published, get, post } = await judged(h);
    for (const [path, body, said] of ASKED) {
      script = said;
      const fails = said === FAILING;
      expect([path, body, await post(path, body)]).toEqual([path, body, fails ? 500 : 200]);
      expect([path, body, await post(path, { ...body, stream: true })]).toEqual([path, body, 200]);
    }
    expect(await post("/v1/messages/count_tokens", CHAT)).toBe(200);
    expect(await get("/v1/models/scripted-1b")).toBe(200);
    expect(await get("/v1/models/other")).toBe(404);
    for (const path of [...READING, "/calibration", "/rounds", "/rounds?limit=1", "/admin/integrations"]) {
      expect([path, await get(path)]).toEqual([path, 200]);
    }
    expect(await get("/metrics?format=prometheus")).toBe(200);
    for (const path of ["/rounds?limit=x", "/metrics?format=x", "/events?batch_ms=1"])
      expect(await get(path)).toBe(400);
    for (const path of [...GENERATING.map(([at]) => at), "/admin/load"]) {
      expect([path, await post(path, { model: 1 })]).toEqual([path, 400]);
    }
    keep(published);
  }

  // The stream of events, one by one and in batches, until the model goes.
  {
    await using h = await adminHarness(() => ({ ...DRAFTED, prefill: [2, 5] }));
    const { published, judge, post } = await judged(h);
    await post("/v1/completions", { prompt: "before the listeners" });
    for (const path of ["/events", "/events?batch_ms=20"]) {
      const reply = await h.get(path);
      const text = reply.text();
      expect(await post("/v1/completions", { prompt: "while they listen" })).toBe(200);
      await until(() => h.engine.active === 0);
      expect(await post("/admin/unload", {})).toBe(200);
      expect(await judge("get", path, reply, await text)).toBe(200);
      const names = new Set([...(await text).matchAll(/^event: (\w+)$/gm)].map(([, name]) => name));
      expect([...names].sort()).toEqual(["prefill", "request", path === "/events" ? "round" : "rounds", "stats"]);
      expect(await post("/admin/load", { model: "first" })).toBe(200);
    }
    keep(published);
  }

  // A model that drafts nothing, and none; loads that run, fail and are given up.
  {
    await using h = await adminHarness(() => writes("Hello."));
    const { published, get, post } = await judged(h);
    for (const path of [...READING, "/calibration"]) expect([path, await get(path)]).toEqual([path, 200]);
    expect(await post("/admin/unload", { force: true })).toBe(200);
    for (const path of READING) expect([path, await get(path)]).toEqual([path, 200]);
    for (const path of OF_MODEL) expect([path, await get(path)]).toEqual([path, 503]);
    for (const [path, body] of GENERATING) expect([path, await post(path, body)]).toEqual([path, 503]);
    expect(await post("/admin/load/cancel", {})).toBe(200);
    h.engine.loading = (onProgress) => {
      onProgress({
        ...{ phase: "download", fraction: 0.5, bytesDone: 5, bytesTotal: 10, bytesPerSecond: 2.5, detail: "" },
        download: { repo: "org/m", file: "a", filesDone: 1, filesTotal: 2, etaSeconds: 2, resumedBytes: 0 },
      });
      return new Promise(() => undefined);
    };
    const load = h.post("/admin/load", { model: "org/m" });
    await until(() => h.slot.status.state === "loading" && h.slot.status.progress !== null);
    for (const path of ["/health", "/admin/status"]) expect([path, await get(path)]).toEqual([path, 200]);
    expect(await post("/admin/load", { model: "org/other" })).toBe(409);
    expect(await post("/admin/unload", {})).toBe(409);
    expect(await post("/admin/load/cancel", { cleanup: true })).toBe(200);
    expect(at(await (await load).json(), "error", "type")).toBe("invalid_request_error");
    h.engine.loading = () => Promise.reject(new Error("no such file"));
    expect(await post("/admin/load", { model: "org/m" })).toBe(500);
    for (const path of ["/health", "/admin/status"]) expect([path, await get(path)]).toEqual([path, 200]);
    keep(published);
  }

  // Refusals of every route: a foreign name, a server that is full.
  {
    await using full = await adminHarness(undefined, { limits: { ...DEFAULT_LIMITS, requests: 0 } });
    await using h = await adminHarness();
    const { published, judge } = await judged(h);
    for (const [path, operations] of Object.entries(published.document.paths)) {
      for (const method of Object.keys(operations)) {
        const init = { method, ...(method === "post" && { body: "{}" }) };
        const at = path.replace("{id}", "m");
        const foreign = await h.get(at, { ...init, headers: { host: "evil.example" } });
        expect([path, await judge(method, path, foreign)]).toEqual([path, 403]);
        expect([path, await judge(method, path, await full.get(at, init))]).toEqual([path, 503]);
      }
    }
    keep(published);
  }

  expect([...seen].sort()).toEqual([...promised].sort());
}, 30_000);

test("the judge finds a field too much, one that is missing, and one of another kind", async () => {
  await using h = await adminHarness();
  const { published } = await judged(h);
  const reply = await h.get("/admin/status");
  const body = Object(await reply.json());
  const faults = (changed: object) => published.faults("get", "/admin/status", reply, JSON.stringify(changed)).length;
  expect(faults(body)).toBe(0);
  expect(faults({ ...body, more: 1 })).toBe(1);
  expect(faults({ ...body, ready: "yes" })).toBe(1);
  expect(faults({ ...body, error: undefined })).toBe(1);
});
