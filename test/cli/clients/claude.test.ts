/** `claude`: which server it uses, what Claude Code gets to know, how both end (cli.md §5). */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { reaching } from "../../../src/cli/clients/proxies.ts";
import { claudeEnvironment, exportLines } from "../../../src/server/clients/claude-environment.ts";
import type { ClientServer } from "../../../src/server/clients/client-server.ts";
import { until } from "../../server/harness.ts";
import { cliBox } from "../harness.ts";
import { type FakeClient, fakeClient } from "./fake-client.ts";

let claude: FakeClient;
beforeEach(() => {
  claude = fakeClient("claude");
});
afterEach(() => claude[Symbol.dispose]());

/** A server by its `/health` alone. */
function healthServer(health: () => unknown, options: { readonly key?: string } = {}) {
  return Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) => {
      const { pathname } = new URL(request.url);
      if (pathname === "/health") return Response.json(health());
      const allowed = options.key === undefined || request.headers.get("authorization") === `Bearer ${options.key}`;
      return allowed ? Response.json({ data: [] }) : new Response("{}", { status: 401 });
    },
  });
}

const OK = {
  ...{ status: "ok", model: "tiny-1b", mode: "dspark", backend: "cpu" },
  ...{ context_window: 131072, max_output_tokens: 32768 },
};
const SERVED: ClientServer = {
  served: {
    ...{ url: "http://127.0.0.1:1", model: "tiny-1b", mode: "dspark", backend: "cpu" },
    ...{ contextWindow: 131072, maxOutputTokens: 32768 },
  },
  key: null,
};

describe("environment", () => {
  test("of a large window", () => {
    const env = claudeEnvironment(SERVED, { allowTraffic: false });
    expect(env).toMatchObject({
      ANTHROPIC_BASE_URL: "http://127.0.0.1:1",
      ANTHROPIC_AUTH_TOKEN: "mlx-dspark",
      ANTHROPIC_MODEL: "tiny-1b",
      ANTHROPIC_SMALL_FAST_MODEL: "tiny-1b",
      ANTHROPIC_DEFAULT_OPUS_MODEL: "tiny-1b",
      ANTHROPIC_DEFAULT_FABLE_MODEL_NAME: "tiny-1b (mlx-dspark)",
      ANTHROPIC_DEFAULT_HAIKU_MODEL_DESCRIPTION: "Local dspark on this machine via mlx-dspark",
      CLAUDE_CODE_MAX_OUTPUT_TOKENS: "16384",
      CLAUDE_CODE_MAX_CONTEXT_TOKENS: "131072",
      CLAUDE_CODE_AUTO_COMPACT_WINDOW: "104857",
      CLAUDE_CODE_ATTRIBUTION_HEADER: "0",
      CLAUDE_STREAM_IDLE_TIMEOUT_MS: "1200000",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    });
    expect(Object.keys(env).length).toBe(22);
  });

  test("of a small one, with a key and traffic", () => {
    const served = { ...SERVED.served, contextWindow: 8192, maxOutputTokens: 8192, backend: "metal" };
    const env = claudeEnvironment({ served, key: "k" }, { allowTraffic: true });
    expect(env).toMatchObject({ ANTHROPIC_AUTH_TOKEN: "k", CLAUDE_CODE_MAX_OUTPUT_TOKENS: "2048" });
    expect(env.ANTHROPIC_DEFAULT_OPUS_MODEL_DESCRIPTION).toBe("Local dspark on Apple Silicon via mlx-dspark");
    expect(env).not.toHaveProperty("CLAUDE_CODE_AUTO_COMPACT_WINDOW");
    expect(env).not.toHaveProperty("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC");
  });

  test("the server's own limit is never exceeded", () => {
    const served = { ...SERVED.served, maxOutputTokens: 1000 };
    expect(claudeEnvironment({ served, key: null }, { allowTraffic: false }).CLAUDE_CODE_MAX_OUTPUT_TOKENS).toBe(
      "1000",
    );
  });

  test("lines for a shell are sorted, quoted, and only what differs", () => {
    const lines = exportLines({ B: "it's", A: "1", C: "same" }, { C: "same", ANTHROPIC_API_KEY: "x" });
    expect(lines).toEqual(["unset ANTHROPIC_API_KEY", "export A='1'", "export B='it'\\''s'"]);
    const script = `${lines.join("\n")}\nprintf %s "$B"`;
    expect(Bun.spawnSync(["/bin/sh", "-c", script]).stdout.toString()).toBe("it's");
  });
});

test.each([
  [{}, {}],
  [{ HTTP_PROXY: "http://p:1" }, { NO_PROXY: "127.0.0.1", no_proxy: "127.0.0.1" }],
  [
    { https_proxy: "http://p:1", NO_PROXY: "a,b" },
    { NO_PROXY: "a,b,127.0.0.1", no_proxy: "a,b,127.0.0.1" },
  ],
  [
    { ALL_PROXY: "x", NO_PROXY: "127.0.0.1" },
    { NO_PROXY: "127.0.0.1", no_proxy: "127.0.0.1" },
  ],
  [{ HTTP_PROXY: "" }, {}],
])("proxies of %p are passed by", (env, added) => {
  expect(reaching("http://127.0.0.1:8080", env)).toEqual({ ...env, ...added });
  expect(reaching("https://far.example", env)).toEqual(env);
});

describe("a server that runs", () => {
  test("claude gets its arguments and environment, and its exit code is ours", async () => {
    using server = healthServer(() => OK, { key: "sesame" });
    const box = cliBox({
      env: { ...claude.env, FAKE_CODE: "3", ANTHROPIC_API_KEY: "secret", CLAUDE_CODE_USE_VERTEX: "1" },
    });
    const code = await box.run(
      "claude",
      "--url",
      `${server.url.href}v1/`,
      "--api-key",
      "sesame",
      "-p",
      "hi",
      "--",
      "--url",
    );
    expect(code).toBe(3);
    const notes = claude.notes();
    expect(notes?.args).toEqual(["-p", "hi", "--url"]);
    expect(notes?.env).toMatchObject({ ANTHROPIC_AUTH_TOKEN: "sesame", ANTHROPIC_BASE_URL: server.url.origin });
    expect(notes?.env).not.toHaveProperty("ANTHROPIC_API_KEY");
    expect(notes?.env).not.toHaveProperty("CLAUDE_CODE_USE_VERTEX");
    expect(box.stderr()).toContain(
      `claude code -> ${server.url.origin}  ·  model tiny-1b (dspark)  ·  this session only`,
    );
    expect(box.engine.loads).toEqual([]);
  });

  test("it waits for a model that is loading", async () => {
    let asked = 0;
    using server = healthServer(() => {
      asked += 1;
      const progress = { phase: "load", fraction: 0.5 };
      return asked < 3 ? { status: "loading", model: null, progress, download: null } : OK;
    });
    const box = cliBox({ env: claude.env });
    expect(await box.run("claude", "--url", server.url.href)).toBe(0);
    expect(asked).toBe(4);
    expect(box.stderr()).toContain("load  ████████████░░░░░░░░░░░░  50 %");
  });

  test("a small window is warned of, but not with --lean", async () => {
    using server = healthServer(() => ({ ...OK, context_window: 8192 }));
    const plain = cliBox({ env: claude.env });
    await plain.run("claude", "--url", server.url.href);
    expect(plain.stderr()).toContain("12000 of the 8192 tokens");
    const lean = cliBox({ env: claude.env });
    await lean.run("claude", "--lean", "--url", server.url.href, "-p", "x");
    expect(lean.stderr()).not.toContain("12000");
    expect(claude.notes()?.args).toEqual(["--bare", "-p", "x"]);
  });

  test("--print-env and --print-settings start nothing", async () => {
    using server = healthServer(() => OK);
    const shell = cliBox({ env: { PATH: "", ANTHROPIC_MODEL: "tiny-1b" } });
    expect(await shell.run("claude", "--url", server.url.href, "--print-env")).toBe(0);
    const lines = shell.stdout().trimEnd().split("\n");
    expect(lines).toContain(`export ANTHROPIC_BASE_URL='${server.url.origin}'`);
    expect(lines).toEqual([...lines].sort());
    expect(shell.stdout()).not.toContain("ANTHROPIC_MODEL=");
    const settings = cliBox({ env: { PATH: "" } });
    expect(await settings.run("claude", "--url", server.url.href, "--print-settings")).toBe(0);
    const { env } = JSON.parse(settings.stdout()) as { env: Record<string, string> };
    expect(env.ANTHROPIC_MODEL).toBe("tiny-1b");
    expect(Object.keys(env).every((name) => /^(ANTHROPIC|CLAUDE)_/.test(name))).toBeTrue();
    expect(claude.notes()).toBeNull();
  });

  test.each([
    [() => ({ status: "no_model", error: "no such file" }), {}, "has no model; its last load failed: no such file"],
    [() => ({ hello: "world" }), {}, "its /health is not mlx-dspark's"],
    [() => OK, { key: "sesame" }, "wants its key: --api-key"],
  ])("%p is exit 2", async (health, options, message) => {
    using server = healthServer(health, options);
    const box = cliBox({ env: claude.env });
    expect(await box.run("claude", "--url", server.url.href)).toBe(2);
    expect(box.stderr()).toContain(message);
    expect(claude.notes()).toBeNull();
  });

  test("nobody at --url, words that are no address, flags of another server: exit 2", async () => {
    const gone = healthServer(() => OK);
    const url = gone.url.href;
    await gone.stop(true);
    for (const [argv, message] of [
      [["--url", url], `no mlx-dspark server at ${new URL(url).origin}`],
      [["--url", "localhost"], "--url must be an http address"],
      [["--url", url, "--model", "m"], "--model is for a server that is started here"],
    ] as const) {
      const box = cliBox({ env: claude.env });
      expect(await box.run("claude", ...argv)).toBe(2);
      expect(box.stderr()).toContain(message);
    }
  });

  test("no claude on PATH: exit 2 with how to get it, before anything is loaded", async () => {
    const box = cliBox({ env: { PATH: "" } });
    expect(await box.run("claude", "--model", "m")).toBe(2);
    expect(box.stderr()).toContain("'claude' is not on PATH: npm install -g @anthropic-ai/claude-code");
    expect(box.engine.loads).toEqual([]);
  });
});

describe("a server of its own", () => {
  test("is loaded, serves the client and ends with it", async () => {
    const box = cliBox({ env: claude.env });
    expect(
      await box.run("claude", "--model", "some/model", "--max-batch=2", "--context-window=auto", "--", "-p", "hi"),
    ).toBe(0);
    expect(box.engine.loads[0]).toMatchObject({ model: "some/model", maxBatch: 2, contextWindow: "auto" });
    const notes = claude.notes();
    expect(notes?.health).toMatchObject({ status: "ok", model: "scripted-1b" });
    expect(notes?.args).toEqual(["-p", "hi"]);
    expect(box.engine.shutdowns).toEqual([0]);
    await expect(fetch(`${notes?.env.ANTHROPIC_BASE_URL}/health`)).rejects.toThrow();
  });

  test("a load that fails is exit 1", async () => {
    const box = cliBox({ env: claude.env });
    box.engine.loading = () => Promise.reject(new Error("no such repository"));
    expect(await box.run("claude", "--model", "a/b")).toBe(1);
    expect(box.stderr()).toContain("could not load a/b: no such repository");
    expect(claude.notes()).toBeNull();
    expect(box.engine.shutdowns).toEqual([0]);
  });

  test("Ctrl-C during the load is exit 130", async () => {
    const box = cliBox({ env: claude.env });
    box.engine.loading = () => new Promise(() => undefined);
    const running = box.run("claude", "--model", "a/b");
    await until(() => box.engine.loads.length === 1);
    box.signal("SIGINT");
    expect(await running).toBe(130);
    expect(claude.notes()).toBeNull();
  });

  test("signals go to the client, and its end is ours", async () => {
    const box = cliBox({ env: { ...claude.env, FAKE_WAITS: "yes" } });
    const running = box.run("claude", "--model", "a/b");
    await until(() => claude.notes() !== null);
    box.signal("SIGTERM");
    expect(await running).toBe(7);
    expect(box.engine.shutdowns).toEqual([0]);
  });

  test("in a terminal Ctrl-C is the terminal's to deliver", async () => {
    const box = cliBox({ env: { ...claude.env, FAKE_WAITS: "yes" }, interactive: true });
    const running = box.run("claude", "--model", "a/b");
    await until(() => claude.notes() !== null);
    box.signal("SIGINT");
    await Bun.sleep(50);
    box.signal("SIGTERM");
    expect(await running).toBe(7);
  });

  test("a client that a signal ended: 128 + its number", async () => {
    const box = cliBox({ env: { ...claude.env, FAKE_KILLS: "yes" } });
    expect(await box.run("claude", "--model", "a/b")).toBe(137);
  });
});
