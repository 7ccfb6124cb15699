/** What there is to load, how clients are set up, and what the machine's examination says. */
import { describe, expect, test } from "bun:test";
import { baseUrlOf } from "../../../src/server/admin/integrations.ts";
import { at } from "../harness.ts";
import { adminHarness, doctor } from "./admin-harness.ts";

describe("models", () => {
  test("the catalogue with the loaded model and ceilings from the measured bandwidth", async () => {
    await using h = await adminHarness();
    const body = await h.json("/admin/models");
    expect(body).toMatchObject({
      models: [
        { id: "tiny", weight_bytes: 2_000_000_000, ceiling_tps: 5 },
        { id: "absent", ceiling_tps: null },
      ],
      installed: [{ repo: "org/tiny", path: "/somewhere/tiny" }],
      loaded: "scripted-1b",
      model_dirs: ["/somewhere"],
      bandwidth: { measured_gb_s: 10, gb_s: 10, source: "measured", reference_gb_s: 273 },
    });
    await h.post("/admin/unload");
    expect(at(await h.json("/admin/models"), "loaded")).toBeNull();
  });

  test("the examination is the program's own", async () => {
    await using h = await adminHarness();
    expect(await h.json("/doctor")).toEqual(await doctor());
  });
});

describe("integrations", () => {
  test("five clients, each with the address as it was reached and the key", async () => {
    await using h = await adminHarness(undefined, { apiKey: "sesame" });
    const headers = { "x-api-key": "sesame" };
    const body = await h.json("/admin/integrations", { headers });
    expect(at(body, "base_url")).toBe(`http://127.0.0.1:${h.port}`);
    expect(at(body, "model")).toBe("scripted-1b");
    const all = at(body, "integrations");
    expect(Array.isArray(all) ? all.map((one) => at(one, "id")) : null).toEqual([
      ...["claude-code", "codex", "opencode", "pi", "openai-compatible"],
    ]);
    const text = JSON.stringify(body);
    expect(text).toContain(`mlx-dspark claude --url http://127.0.0.1:${h.port} --api-key sesame`);
    expect(text).toContain(`base_url = \\"http://127.0.0.1:${h.port}/v1\\"`);
    const codex = at(all, 1, "setup", 0);
    expect(at(codex, "path")).toBe("~/.codex/mlx-dspark.config.toml");
    // A profile is a file of its own; Codex refuses the tables of old.
    expect(Bun.TOML.parse(String(at(codex, "content")))).toMatchObject({
      ...{ model_provider: "mlx-dspark", model: "scripted-1b", model_context_window: 4096 },
      model_providers: { "mlx-dspark": { wire_api: "responses", env_key: "MLX_DSPARK_KEY" } },
    });
    expect(at(all, 0, "setup", 1, "env")).toMatchObject({
      ...{ CLAUDE_CODE_MAX_CONTEXT_TOKENS: "4096", CLAUDE_CODE_MAX_OUTPUT_TOKENS: "2048" },
      ...{ ANTHROPIC_AUTH_TOKEN: "sesame", ANTHROPIC_DEFAULT_HAIKU_MODEL: "scripted-1b" },
    });
    expect(text).toContain("MLX_DSPARK_KEY=sesame codex --profile mlx-dspark");
    const pi: unknown = JSON.parse(String(at(all, 3, "setup", 0, "content")));
    expect(at(pi, "providers", "mlx-dspark")).toMatchObject({
      api: "anthropic-messages",
      apiKey: "sesame",
      models: [{ id: "scripted-1b", contextWindow: 3072 + 16384, maxTokens: 1024 }],
    });
    expect((await h.get("/admin/integrations")).status).toBe(401);
  });

  test("without a model there is nothing to set up", async () => {
    await using h = await adminHarness(undefined, {}, { loaded: false });
    expect((await h.get("/admin/integrations")).status).toBe(503);
  });

  test.each(["localhost", "127.0.0.1:8080", "[::1]:8080", "box.lan", "a"])("the Host %s is taken", (host) => {
    expect(baseUrlOf(host)).toBe(`http://${host}`);
  });

  test.each([
    ...['a"b', "a b", "user@host", "host/path", "host:8080/x", "-a", "a-", "host:port", "host:123456", "", "é.example"],
    ...["[::1", "host\\x", "$(reboot)", "'; DROP", "a\tb"],
  ])("the Host %j is not", (host) => {
    expect(() => baseUrlOf(host)).toThrow("Host header");
  });
  test("nor none", () => expect(() => baseUrlOf(null)).toThrow("Host header"));
});
