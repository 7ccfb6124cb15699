/** Loads at run time: what they may be asked, what they do to requests, and how they end. */
import { describe, expect, test } from "bun:test";
import { EngineError } from "../../../src/engine/client.ts";
import type { ModelInfo } from "../../../src/engine/protocol.ts";
import { at, dataLines, until } from "../harness.ts";
import { SCRIPTED_MODEL, writes } from "../scripted-engine.ts";
import { adminHarness, CHAT } from "./admin-harness.ts";

const ENDLESS = () => writes("", { ids: [97], endless: true, stepMs: 5 });
const OTHER: ModelInfo = { ...SCRIPTED_MODEL, id: "other-2b" };

describe("a load", () => {
  test("answers when the model answers, warmed up, with its own text side", async () => {
    await using h = await adminHarness(undefined, {}, { loaded: false });
    expect(await h.json("/admin/status")).toEqual({ ready: false, loading: false, model: null, error: null });
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(503);
    const reply = await h.post("/admin/load", { model: "org/some" });
    expect(reply.status).toBe(200);
    expect(await reply.json()).toEqual({ ready: true, loading: false, model: "scripted-1b", error: null });
    expect(h.engine.loads[0]).toMatchObject({ model: "org/some", contextWindow: null, kvBits: 0, maxBatch: 4 });
    expect(h.engine.loads[0]?.speculation).toMatchObject({ mode: "auto", drafter: null, maxDraft: null });
    expect(h.engine.warmups).toBe(1);
    expect(h.texts).toHaveLength(1);
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(200);
    expect(await h.json("/health")).toMatchObject({ status: "ok", warmup: true });
  });

  test("every override reaches the engine, and three of them stay", async () => {
    await using h = await adminHarness();
    const first = await h.post("/admin/load", {
      ...{ model: "a", mode: "dspark", drafter: "org/d", max_draft: 4, lookup_drafts: false, lookup_long_draft: 9 },
      ...{ confidence_threshold: 0.25, drafter_bits: 8, drafter_window: 0, kv_bits: 8, context_window: 2048 },
      ...{ enable_thinking: false, reasoning_effort: "high", warmup: false, force: true },
      ...{ small_m: false, sdpa_split: false, multirow_attn: false, memory_guard: false, cpu_split: 0 },
    });
    expect(first.status).toBe(200);
    expect(h.engine.loads.at(-1)).toMatchObject({
      ...{ model: "a", kvBits: 8, contextWindow: 2048 },
      speculation: {
        ...{ mode: "dspark", drafter: "org/d", maxDraft: 4, lookupDrafts: false, lookupLongDraft: 9 },
        ...{ confidenceThreshold: 0.25, drafterBits: 8, drafterWindow: 0 },
      },
    });
    expect(h.engine.warmups).toBe(0);
    expect(await h.json("/health")).toMatchObject({
      ...{ kv_bits: 8, thinking_default: "off", reasoning_effort: "high", warmup: false },
    });
    await h.post("/v1/chat/completions", CHAT);
    expect(h.texts.at(-1)?.rendered.at(-1)).toMatchObject({ enableThinking: false });
    await h.post("/admin/load", { model: "b" });
    expect(h.engine.loads.at(-1)).toMatchObject({ model: "b", kvBits: 0, contextWindow: 2048 });
    expect(h.engine.loads.at(-1)?.speculation).toMatchObject({ mode: "auto", drafter: null, lookupDrafts: null });
    expect(await h.json("/health")).toMatchObject({ thinking_default: "off", reasoning_effort: "high" });
    await h.post("/admin/load", { model: "c", context_window: 0, enable_thinking: true });
    expect(h.engine.loads.at(-1)).toMatchObject({ contextWindow: null });
    expect(await h.json("/health")).toMatchObject({ thinking_default: "on" });
    await h.post("/admin/load", { model: "d", context_window: "auto", max_draft: "auto" });
    expect(h.engine.loads.at(-1)).toMatchObject({ contextWindow: "auto", speculation: { maxDraft: "auto" } });
  });

  test.each([
    [{}, null, "load needs a 'model' (repo or path)"],
    [{ model: "" }, "model", "load needs a 'model' (repo or path)"],
    [{ model: 5 }, "model", "must be a string"],
    [{ model: "m", mode: "dsparc" }, "mode", "must be one of auto, dspark"],
    [{ model: "m", max_draft: 1.5 }, "max_draft", "an integer or 'auto'"],
    [{ model: "m", lookup_drafts: "yes" }, "lookup_drafts", "must be a boolean"],
    [{ model: "m", confidence_threshold: 1.1 }, "confidence_threshold", "must be a number in [0, 1]"],
    [{ model: "m", context_window: 1023 }, "context_window", "an integer token count >= 1024, or 0"],
    [{ model: "m", context_window: 10_000_001 }, "context_window", ">= 1024"],
    [{ model: "m", kv_bits: 3 }, "kv_bits", "0 (full precision), 4, or 8"],
    [{ model: "m", drafter_window: -1 }, "drafter_window", "a non-negative integer"],
    [{ model: "m", drafter_bits: 7 }, "drafter_bits", "one of 0, 2, 3, 4, 5, 6, 8"],
    [{ model: "m", lookup_long_draft: -1 }, "lookup_long_draft", "a non-negative integer"],
    [{ model: "m", cpu_split: 1 }, "cpu_split", "a number in [0, 1)"],
    [{ model: "m", enable_thinking: 1 }, "enable_thinking", "must be a boolean"],
    [{ model: "m", reasoning_effort: "max" }, "reasoning_effort", "must be one of low, medium, high, xhigh"],
    [{ model: "m", warmup: "no" }, "warmup", "must be a boolean"],
    [{ model: "m", force: 1 }, "force", "must be a boolean"],
    [{ model: "m", small_m: 1 }, "small_m", "must be a boolean"],
    [{ model: "m", small_m: true }, "small_m", "no such kernel"],
    [{ model: "m", sdpa_split: true }, "sdpa_split", "no such kernel"],
    [{ model: "m", multirow_attn: true }, "multirow_attn", "no such kernel"],
    [{ model: "m", cpu_split: 0.3 }, "cpu_split", "no such kernel"],
    [{ model: "m", memory_guard: true }, "memory_guard", "no memory guard"],
  ])("%j is a 400 before anything is given up", async (body, param, text) => {
    await using h = await adminHarness();
    const reply = await h.post("/admin/load", body);
    expect(reply.status).toBe(400);
    const error = at(await reply.json(), "error");
    expect(at(error, "message")).toContain(text);
    if (param !== null) expect(at(error, "param")).toBe(param);
    expect(h.engine.loads).toHaveLength(1);
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(200);
  });

  test("what the engine refuses by name leaves the old model, too", async () => {
    await using h = await adminHarness();
    h.engine.examining = () =>
      Promise.reject(new EngineError({ kind: "load_refused", message: "/x/y: config.json:auto_map: Python code" }));
    const reply = await h.post("/admin/load", { model: "org/foreign" });
    expect(reply.status).toBe(400);
    expect(at(await reply.json(), "error", "message")).toBe("y: config.json:auto_map: Python code");
    expect(h.engine.loads).toHaveLength(1);
    expect(await h.json("/admin/status")).toMatchObject({ ready: true, error: null });
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(200);
  });
});

describe("requests during a load", () => {
  test("those that run end first, new ones are 503 with Retry-After, health tells how far it is", async () => {
    await using h = await adminHarness(() => writes("to the very end", { stepMs: 8 }));
    const running = h.post("/v1/chat/completions", CHAT);
    await until(() => h.engine.active === 1);
    const gate = Promise.withResolvers<void>();
    h.engine.loading = async (onProgress) => {
      const counts = { fraction: 0.5, bytesDone: 5, bytesTotal: 10, bytesPerSecond: 1, detail: "" };
      const download = { repo: "org/b", file: "f", filesDone: 1, filesTotal: 3, etaSeconds: 5, resumedBytes: 2 };
      onProgress({ phase: "download", ...counts, download });
      await gate.promise;
      return OTHER;
    };
    const load = h.post("/admin/load", { model: "org/b" });
    await until(() => h.slot.status.state === "loading");
    const refused = await h.post("/v1/chat/completions", CHAT);
    expect(refused.status).toBe(503);
    expect(refused.headers.get("retry-after")).toBe("1");
    expect(at(await refused.json(), "error")).toMatchObject({
      ...{ type: "service_unavailable", code: "model_not_ready" },
      message: "a model is loading — try again in a moment",
    });
    const whole = await running;
    expect(at(await whole.json(), "choices", 0, "message", "content")).toBe("to the very end");
    await until(() => h.engine.loads.length === 2);
    const download = {
      ...{ repo: "org/b", bytes_done: 5, bytes_total: 10, bytes_per_s: 1 },
      ...{ file: "f", files_done: 1, files_total: 3, eta_s: 5, resumed_bytes: 2 },
    };
    expect(await h.json("/health")).toMatchObject({ status: "loading", loading: true, phase: "loading", download });
    expect(await h.json("/admin/status")).toMatchObject({ ready: false, loading: true, phase: "loading", download });
    expect(at(await h.json("/v1/models"), "data")).toEqual([]);
    gate.resolve();
    expect(await (await load).json()).toMatchObject({ ready: true, model: "other-2b" });
    expect(h.texts).toHaveLength(2);
    expect(at(await (await h.post("/v1/chat/completions", CHAT)).json(), "model")).toBe("other-2b");
  });

  test("force does not wait: streams end with a clear error", async () => {
    await using h = await adminHarness(ENDLESS);
    const stream = await h.post("/v1/chat/completions", { ...CHAT, stream: true });
    await until(() => h.engine.active === 1);
    // The scripted engine cannot end rows by itself: the real one fails them when the model goes.
    h.engine.loading = async () => {
      h.engine.fail({ kind: "not_ready", message: "another model is being loaded" });
      return OTHER;
    };
    const load = await h.post("/admin/load", { model: "b", force: true });
    expect(load.status).toBe(200);
    expect(dataLines(await stream.text()).at(-1)).toEqual({
      error: { message: "another model is being loaded", type: "service_unavailable", code: "model_not_ready" },
    });
  });

  test("a request that was prepared for the old model never runs on the new one", async () => {
    await using h = await adminHarness();
    const text = h.texts[0];
    const encoded = Promise.withResolvers<readonly number[]>();
    if (text !== undefined) text.encodeChat = () => encoded.promise;
    const slow = h.post("/v1/chat/completions", CHAT);
    await Bun.sleep(10);
    h.engine.loading = () => Promise.resolve(OTHER);
    expect((await h.post("/admin/load", { model: "b", force: true })).status).toBe(200);
    encoded.resolve([1, 2, 3]);
    const reply = await slow;
    expect(reply.status).toBe(503);
    expect(h.engine.requests).toHaveLength(0);
  });

  test("an equal load shares the end of the one under way, another is 409, an unload too", async () => {
    await using h = await adminHarness();
    const gate = Promise.withResolvers<void>();
    h.engine.loading = async () => {
      await gate.promise;
      return OTHER;
    };
    const first = h.post("/admin/load", { model: "b" });
    await until(() => h.engine.loads.length === 2);
    const same = h.post("/admin/load", { model: "b" });
    const different = await h.post("/admin/load", { model: "b", kv_bits: 4 });
    expect(different.status).toBe(409);
    expect(at(await different.json(), "error")).toMatchObject({ code: "load_in_progress" });
    expect((await h.post("/admin/unload")).status).toBe(409);
    gate.resolve();
    expect((await first).status).toBe(200);
    expect((await same).status).toBe(200);
    expect(h.engine.loads).toHaveLength(2);
  });
});

describe("a load that fails", () => {
  test("is a 500 with the reason; no model is left, the error stays, the server lives", async () => {
    await using h = await adminHarness();
    h.engine.loading = () => Promise.reject(new Error("cannot read /models/b/model.safetensors: cut off"));
    const reply = await h.post("/admin/load", { model: "/models/b" });
    expect(reply.status).toBe(500);
    const message = "could not load 'b': cannot read model.safetensors: cut off";
    expect(at(await reply.json(), "error")).toMatchObject({ type: "api_error", message });
    const error = "cannot read model.safetensors: cut off";
    expect(await h.json("/admin/status")).toEqual({ ready: false, loading: false, model: null, error });
    expect(await h.json("/health")).toMatchObject({ status: "no_model", loading: false, error });
    expect((await h.post("/v1/chat/completions", CHAT)).status).toBe(503);
    h.engine.loading = () => Promise.resolve(OTHER);
    expect((await h.post("/admin/load", { model: "c" })).status).toBe(200);
    expect(await h.json("/admin/status")).toMatchObject({ ready: true, error: null });
  });

  test("a text side that cannot be read takes the weights with it", async () => {
    await using h = await adminHarness();
    h.reading = () => Promise.reject(new Error("tokenizer.json is damaged"));
    const reply = await h.post("/admin/load", { model: "b" });
    expect(reply.status).toBe(500);
    expect(at(await reply.json(), "error", "message")).toContain("tokenizer.json is damaged");
    expect(h.engine.unloads).toBe(1);
    expect(await h.json("/health")).toMatchObject({ status: "no_model" });
  });
});

describe("cancel", () => {
  test("nothing to cancel is said", async () => {
    await using h = await adminHarness();
    expect(await (await h.post("/admin/load/cancel")).json()).toEqual({
      cancelled: false,
      reason: "no download in progress",
    });
    expect((await h.post("/admin/load/cancel", { cleanup: 1 })).status).toBe(400);
  });

  test("a load under way ends with a 400, partial files as asked", async () => {
    await using h = await adminHarness();
    h.engine.loading = () => new Promise(() => undefined);
    const load = h.post("/admin/load", { model: "org/b" });
    await until(() => h.engine.loads.length === 2);
    const cancel = await h.post("/admin/load/cancel", { cleanup: true });
    expect(await cancel.json()).toEqual({ cancelled: true, repo: "org/b", cleanup: true });
    expect(h.engine.cancels).toEqual([true]);
    const reply = await load;
    expect(reply.status).toBe(400);
    expect(at(await reply.json(), "error", "message")).toContain("cancelled");
    expect(await h.json("/health")).toMatchObject({ status: "no_model" });
  });

  test("while running requests are waited for, the old model stays", async () => {
    await using h = await adminHarness(ENDLESS);
    const client = new AbortController();
    void h.post("/v1/chat/completions", CHAT, { signal: client.signal }).catch(() => undefined);
    await until(() => h.engine.active === 1);
    const load = h.post("/admin/load", { model: "b" });
    await until(() => h.slot.status.state === "loading");
    await h.post("/admin/load/cancel");
    expect((await load).status).toBe(400);
    expect(h.engine.loads).toHaveLength(1);
    expect(await h.json("/admin/status")).toMatchObject({ ready: true, model: "scripted-1b" });
    client.abort();
  });

  test("while the text side is read, the weights go again", async () => {
    await using h = await adminHarness();
    const gate = Promise.withResolvers<void>();
    h.reading = () => gate.promise;
    const load = h.post("/admin/load", { model: "b" });
    await until(() => h.engine.status.state === "ready" && h.engine.loads.length === 2);
    await h.post("/admin/load/cancel");
    gate.resolve();
    expect((await load).status).toBe(400);
    expect(h.engine.unloads).toBe(1);
    expect(await h.json("/admin/status")).toMatchObject({ ready: false });
  });
});

describe("unload", () => {
  test("frees the model, twice is fine, and requests are told how to get one", async () => {
    await using h = await adminHarness();
    for (let i = 0; i < 2; i++) {
      const reply = await h.post("/admin/unload");
      expect(reply.status).toBe(200);
      expect(await reply.json()).toEqual({ ready: false, loading: false, model: null, error: null });
    }
    expect(h.slot.text).toBeNull();
    const refused = await h.post("/v1/chat/completions", CHAT);
    expect(refused.status).toBe(503);
    expect(at(await refused.json(), "error", "message")).toBe("no model is loaded — load one with POST /admin/load");
    expect(await h.json("/health")).toMatchObject({ status: "no_model", error: null });
    expect((await h.post("/admin/load", { model: "again" })).status).toBe(200);
  });

  test("waits for what runs, unless it is forced", async () => {
    await using h = await adminHarness(() => writes("whole", { stepMs: 8 }));
    const running = h.post("/v1/chat/completions", CHAT);
    await until(() => h.engine.active === 1);
    const unload = h.post("/admin/unload");
    expect(at(await (await running).json(), "choices", 0, "message", "content")).toBe("whole");
    expect((await unload).status).toBe(200);
    expect(h.engine.unloads).toBe(1);
  });
});
