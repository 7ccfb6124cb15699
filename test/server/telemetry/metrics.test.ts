/** The counters, in both forms, against what was asked and answered; and what the machine's routes say. */
import { describe, expect, test } from "bun:test";
import type { GenerateEvent } from "../../../src/engine/client.ts";
import type { GenerateRequest, ModelInfo } from "../../../src/engine/protocol.ts";
import { CounterFamily, gauge, HistogramFamily } from "../../../src/server/telemetry/series.ts";
import { type AdminHarness, adminHarness, CHAT } from "../admin/admin-harness.ts";
import { at, until } from "../harness.ts";
import { writes } from "../scripted-engine.ts";

/** Value of one Prometheus line. */
function value(text: string, line: string): number | null {
  const found = text.split("\n").find((one) => one.startsWith(`${line} `));
  return found === undefined ? null : Number(found.slice(line.length + 1));
}

const prometheus = async (h: AdminHarness) => (await h.get("/metrics?format=prometheus")).text();

/** The scripted engine with a drafter: rounds of two tokens, one of them drafted. */
function drafting(h: AdminHarness): void {
  const inner = h.engine.generate.bind(h.engine);
  h.engine.generate = async function* (request: GenerateRequest, signal?: AbortSignal) {
    let first = true;
    for await (const event of inner(request, signal)) {
      const round = first ? null : { source: "drafter", drafted: 2, accepted: 1, cap: 2, ms: 8 };
      if (event.type !== "tokens") yield event;
      else {
        yield { ...event, round } as GenerateEvent;
        first = false;
      }
    }
  };
}

describe("counters", () => {
  test("requests by API and outcome, tokens, seconds: the same in both forms", async () => {
    await using h = await adminHarness(() => writes("abc"));
    await h.post("/v1/chat/completions", CHAT);
    await h.post("/v1/chat/completions", { ...CHAT, max_tokens: 2 });
    await (await h.post("/v1/completions", { prompt: "xy", stream: true })).text();
    await h.post("/v1/messages", { ...CHAT, max_tokens: 50 });
    await h.post("/v1/responses", { input: "hi" });
    await h.post("/v1/chat/completions", { messages: 5 });
    const json = await h.json("/metrics");
    expect(json).toMatchObject({
      ...{ model: "scripted-1b", mode: "baseline", requests: 5, completion_tokens: 4 + 2 + 4 + 4 + 4 },
      ...{ queue: { running: 0, waiting: 0 }, prefix_cache: { enabled: false }, memory_guard: { enabled: false } },
      ...{ auto_cap: null, mean_tokens_per_sec: 1.4, mean_decode_tokens_per_sec: 1.8 },
      batching: { max_batch: 4, batched_requests: 0, serial_requests: 5, max_batch_seen: 1 },
      memory: { available: true },
    });
    const text = await prometheus(h);
    const labels = 'model="scripted-1b",mode="baseline"';
    const requests = (api: string, outcome: string) =>
      value(text, `mlx_dspark_requests_total{${labels},api="${api}",outcome="${outcome}"}`);
    expect(requests("chat", "stop")).toBe(1);
    expect(requests("chat", "length")).toBe(1);
    expect(requests("completions", "stop")).toBe(1);
    expect(requests("messages", "stop")).toBe(1);
    expect(requests("responses", "stop")).toBe(1);
    expect(value(text, `mlx_dspark_completion_tokens_total{${labels}}`)).toBe(18);
    expect(value(text, `mlx_dspark_prompt_tokens_total{${labels}}`)).toBe(Number(at(json, "prompt_tokens")));
    expect(value(text, `mlx_dspark_cached_prompt_tokens_total{${labels}}`)).toBe(15);
    expect(value(text, `mlx_dspark_prefill_seconds_total{${labels}}`)).toBe(2.5);
    expect(value(text, `mlx_dspark_decode_seconds_total{${labels}}`)).toBe(10);
    expect(value(text, `mlx_dspark_ttft_seconds_bucket{${labels},api="chat",le="0.5"}`)).toBe(2);
    expect(value(text, `mlx_dspark_ttft_seconds_bucket{${labels},api="chat",le="0.25"}`)).toBe(0);
    expect(value(text, `mlx_dspark_queue_seconds_sum{${labels},api="chat"}`)).toBe(0.5);
    expect(value(text, "mlx_dspark_model_loaded")).toBe(1);
    expect(value(text, "mlx_dspark_batch_slots")).toBe(4);
    expect(value(text, `mlx_dspark_build_info{version="9.9.9",mlx="0.0.1",backend="cpu"}`)).toBe(1);
    expect(value(text, "mlx_dspark_bandwidth_gb_per_second")).toBe(10);
    expect(value(text, `mlx_dspark_http_requests_total{route="/v1/chat/completions",status="200"}`)).toBe(2);
    expect(value(text, `mlx_dspark_http_requests_total{route="/v1/chat/completions",status="400"}`)).toBe(1);
    expect(text).not.toMatch(/prefix_cache|sheds|NaN|undefined|null/);
  });

  test("grammars: compiles and masks as histograms, restarts and hits as totals that outlive a model", async () => {
    await using h = await adminHarness(() => writes("abc"));
    const { grammars } = h.engine;
    for (const ms of [8, 400, 9000]) grammars.compiled(ms);
    grammars.masked(0.02);
    grammars.restarted();
    grammars.hit();
    grammars.hit();
    await h.post("/admin/unload", {});
    const text = await prometheus(h);
    const line = (name: string) => value(text, `mlx_dspark_grammar_${name}`);
    const compiles = ["0.01", "0.2", "0.5", "5", "+Inf"].map((le) => line(`compile_seconds_bucket{le="${le}"}`));
    expect(compiles).toEqual([1, 1, 2, 2, 3]);
    expect([line("compile_seconds_sum"), line("compile_seconds_count")]).toEqual([9.408, 3]);
    expect([line('mask_seconds_bucket{le="0.00002"}'), line("mask_seconds_count")]).toEqual([1, 1]);
    expect([line("restarts_total"), line("cache_hits_total")]).toEqual([1, 2]);
    expect(text).toContain("# TYPE mlx_dspark_grammar_mask_seconds histogram");
    expect(text).toContain("# TYPE mlx_dspark_grammar_restarts_total counter");
  });

  test("requests that ran beside others are told apart, and how often that began", async () => {
    await using h = await adminHarness(() => writes("abcdef", { stepMs: 10 }));
    await Promise.all([1, 2, 3].map(() => h.post("/v1/chat/completions", CHAT)));
    await h.post("/v1/chat/completions", CHAT);
    expect(at(await h.json("/metrics"), "batching")).toMatchObject({
      ...{ batched_requests: 3, serial_requests: 1, batches: 1, max_batch_seen: 3 },
    });
  });

  test("errors and lost clients have outcomes of their own; warm-ups have none", async () => {
    const error = { kind: "internal", message: "broken" } as const;
    await using h = await adminHarness((request) =>
      request.promptIds.length > 12
        ? writes("abc", { failure: { after: 1, error } })
        : writes("", { ids: [97], endless: true, stepMs: 5 }),
    );
    expect((await h.post("/v1/completions", { prompt: "a long prompt fails" })).status).toBe(500);
    const client = new AbortController();
    const stream = await h.post("/v1/completions", { prompt: "x", stream: true }, { signal: client.signal });
    await until(() => h.engine.active === 1);
    client.abort();
    await stream.text().catch(() => undefined);
    await until(() => h.engine.active === 0);
    await h.post("/admin/load", { model: "again" });
    expect(h.engine.warmups).toBe(1);
    const text = await prometheus(h);
    const total = (outcome: string) =>
      value(
        text,
        `mlx_dspark_requests_total{model="scripted-1b",mode="baseline",api="completions",outcome="${outcome}"}`,
      );
    expect({ error: total("error"), cancelled: total("cancelled") }).toEqual({ error: 1, cancelled: 1 });
    expect(at(await h.json("/metrics"), "requests")).toBe(2);
  });

  test("rounds: committed plus the first tokens are the completions; drafts by their source", async () => {
    await using h = await adminHarness(() => writes("0123456789", { perStep: 2 }));
    drafting(h);
    for (let i = 0; i < 3; i++) await h.post("/v1/completions", { prompt: "x" });
    const rounds = await h.json("/rounds");
    const completion = Number(at(await h.json("/metrics"), "completion_tokens"));
    const firsts = 3 * 2; // The script's first step has two tokens and is no round.
    expect(Number(at(rounds, "stats", "committed_tokens")) + firsts).toBe(completion);
    expect(at(rounds, "rounds", 0)).toMatchObject({
      ...{ mode: "baseline", i: 0, drafted: 2, accepted: 1, committed: 2, cap: 2, source: "drafter", ms: 8 },
      ...{ row: 0, R: 1, seq: 0, req: expect.stringMatching(/^[0-9a-f]{8}$/), t: expect.any(Number) },
    });
    expect(at(await h.json("/rounds?limit=2"), "rounds", "length")).toBe(2);
    const text = await prometheus(h);
    const labels = 'model="scripted-1b",mode="baseline"';
    const count = Number(at(rounds, "stats", "rounds"));
    expect(value(text, `mlx_dspark_rounds_total{${labels},source="drafter"}`)).toBe(count);
    expect(value(text, `mlx_dspark_draft_tokens_total{${labels},source="drafter"}`)).toBe(2 * count);
    expect(value(text, `mlx_dspark_accepted_tokens_total{${labels},source="drafter"}`)).toBe(count);
    expect(value(text, `mlx_dspark_position_acceptance{${labels},position="0"}`)).toBe(1);
    expect(value(text, `mlx_dspark_position_acceptance{${labels},position="1"}`)).toBe(0);
    // Two tokens in 8 ms are 4 ms apart; the last round of each request has one.
    const gaps = (bound: string) => value(text, `mlx_dspark_inter_token_seconds_bucket{${labels},le="${bound}"}`);
    expect([gaps("0.0025"), gaps("0.005"), gaps("0.01")]).toEqual([0, completion - firsts - 3, completion - firsts]);
  });

  test.each(["-1", "x", "1e3", "1.5", ""])("a limit of %j is a 400", async (limit) => {
    await using h = await adminHarness();
    expect((await h.get(`/rounds?limit=${limit}`)).status).toBe(400);
  });
});

describe("negotiation", () => {
  test.each([
    [undefined, "", "json"],
    ["application/json", "", "json"],
    ["text/plain", "", "text"],
    ["text/plain;version=0.0.4", "", "text"],
    ["application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "", "text"],
    ["application/json, text/plain, */*", "", "json"],
    ["*/*", "", "json"],
    ["text/plain", "?format=json", "json"],
    ["*/*", "?format=prometheus", "text"],
  ])("Accept %p%s: %s", async (accept, query, kind) => {
    await using h = await adminHarness();
    const reply = await h.get(`/metrics${query}`, { headers: accept === undefined ? {} : { accept } });
    const type = reply.headers.get("content-type") ?? "";
    expect(type).toStartWith(kind === "json" ? "application/json" : "text/plain; version=0.0.4");
    if (kind === "json") await reply.json();
    else expect(await reply.text()).toStartWith("# HELP mlx_dspark_");
  });
});

describe("the machine", () => {
  test("with a model: its weights, roofline and verdict", async () => {
    await using h = await adminHarness();
    await h.post("/v1/completions", { prompt: "four" });
    expect(await h.json("/machine")).toMatchObject({
      bandwidth: { gb_s: 10, source: "measured", method: "scripted", reference_gb_s: 273 },
      memory: { total_bytes: expect.any(Number), allocator: { available: true } },
      model: {
        ...{ target: "scripted-1b", drafter: null, mode: "baseline", kv_bytes_per_token: 10, context_window: 4096 },
        target_weights: { total_bytes: 1000, active_bytes: 800, is_moe: false, active_is_estimate: false },
        drafter_weights: null,
      },
      roofline: {
        at_zero: { context: 0, bytes_per_token: 800, ceiling_tps: 12_500_000 },
        at_last_request: { context: 11, bytes_per_token: 910 },
        at_context_window: { context: 4096, bytes_per_token: 41_760 },
      },
      baseline: null,
      verdict: { level: expect.any(String), findings: expect.any(Array), levers: expect.any(Array) },
      guard: { enabled: false },
    });
  });

  test("without one: what is known of the machine, and no model's part", async () => {
    await using h = await adminHarness(undefined, {}, { loaded: false });
    const nothing = { model: null, roofline: null, baseline: null, verdict: null };
    expect(await h.json("/machine")).toMatchObject({ chip: { name: expect.any(String) }, ...nothing });
    expect(await h.json("/metrics")).toMatchObject({ model: null, mode: null, requests: 0, verdict: null });
    expect(value(await prometheus(h), "mlx_dspark_model_loaded")).toBe(0);
    for (const path of ["/rounds", "/calibration", "/events"]) expect((await h.get(path)).status).toBe(503);
  });

  test("calibration: not here, and why; or the curves", async () => {
    await using h = await adminHarness();
    expect(await h.json("/calibration")).toMatchObject({
      available: false,
      reason: expect.stringContaining("drafted"),
    });
    const costs = {
      verify: { "1": 4, "5": 6 },
      drafter: { "4": 1 },
      overhead: 0.5,
      plain: null,
      depth0: 512,
      depthSlope: null,
    };
    const info = { lookupDrafts: true, confidenceThreshold: 0, drafterWindow: null, drafterBytes: 70 };
    const drafting = { ...info, maxDraft: "auto", costs } as const;
    const model: ModelInfo = { ...h.engine.model, mode: "dspark", drafter: "d", drafting };
    h.engine.loading = () => Promise.resolve(model);
    await h.post("/admin/load", { model: "pair" });
    expect(await h.json("/calibration")).toMatchObject({
      ...{ available: true, mode: "dspark", target: "scripted-1b", drafter: "d" },
      ...{ verify_ms: { "1": 4, "5": 6 }, drafter_ms: { "4": 1 }, round_overhead_ms: 0.5 },
    });
    const machine = await h.json("/machine");
    expect(at(machine, "model", "drafter_weights", "total_bytes")).toBe(70);
    expect(at(machine, "baseline", "step_ms")).toBe(4);
  });
});

describe("exposition", () => {
  test("labels are escaped, histograms cumulative, empty families silent", () => {
    const counter = new CounterFamily("c_total", "help");
    expect(counter.lines()).toEqual([]);
    counter.of({ model: 'a"b\\c\nd' }).value += 2;
    expect(counter.lines()).toEqual([
      "# HELP c_total help",
      "# TYPE c_total counter",
      'c_total{model="a\\"b\\\\c\\nd"} 2',
    ]);
    const histogram = new HistogramFamily("h", "help", [1, 2]);
    histogram.of({}).observe(0.5, 3);
    histogram.of({}).observe(2);
    histogram.of({}).observe(9);
    expect(histogram.lines().slice(2)).toEqual([
      ...['h_bucket{le="1"} 3', 'h_bucket{le="2"} 4', 'h_bucket{le="+Inf"} 5', "h_sum 12.5", "h_count 5"],
    ]);
    expect(gauge("g", "help", [[{}, null]])).toEqual([]);
  });
});
