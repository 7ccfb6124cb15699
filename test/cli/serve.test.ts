/** `serve`: the port first, then the model; signals; what stderr says (cli.md §4). */
import { describe, expect, test } from "bun:test";
import { at, until } from "../server/harness.ts";
import { writes } from "../server/scripted-engine.ts";
import { fakeClient } from "./clients/fake-client.ts";
import { type CliBox, cliBox } from "./harness.ts";

/** Waits for the address that the server says it listens on. */
async function urlOf(box: CliBox): Promise<string> {
  await until(() => /listening on (\S+)\/v1/.test(box.stderr()));
  return /listening on (\S+)\/v1/.exec(box.stderr())?.[1] ?? "";
}

const BODY = { method: "POST", body: JSON.stringify({ messages: [{ role: "user", content: "hi" }] }) };

test("binds, answers health while loading, serves, stops on SIGTERM with exit 0", async () => {
  const box = cliBox();
  const loaded = Promise.withResolvers<void>();
  box.engine.loading = async (onProgress) => {
    onProgress({ phase: "load", fraction: 0.5, bytesDone: null, bytesTotal: null, bytesPerSecond: null, detail: "" });
    await loaded.promise;
    return box.engine.model;
  };
  const running = box.run("serve", "--port", "0", "--model", "m", "--max-batch", "2", "--max-queue", "3");
  const url = await urlOf(box);
  await until(() => box.engine.loads.length === 1);
  expect(at(await (await fetch(`${url}/health`)).json(), "status")).toBe("loading");
  expect((await fetch(`${url}/v1/chat/completions`, BODY)).status).toBe(503);
  loaded.resolve();
  await until(() => box.stderr().includes("ready\n"));
  expect(at(await (await fetch(`${url}/health`)).json(), "status")).toBe("ok");
  const reply: unknown = await (await fetch(`${url}/v1/chat/completions`, BODY)).json();
  expect(at(reply, "choices", 0, "message", "content")).toBe("Hello.");
  expect(box.stderr()).toContain(`mlx-dspark claude --url ${url}, or ANTHROPIC_BASE_URL=${url} (no /v1)`);
  expect(box.engine.loads[0]).toMatchObject({ model: "m", maxBatch: 2, maxQueue: 3, contextWindow: null });
  box.signal("SIGTERM");
  expect(await running).toBe(0);
  expect(box.stderr()).toEndWith("shutting down.\n");
  expect(box.stdout()).toBe("");
  expect(box.engine.shutdowns).toEqual([10_000]);
  await expect(fetch(`${url}/health`)).rejects.toThrow();
});

test("flags and environment reach the server", async () => {
  const box = cliBox({
    script: () => writes("x", { stepMs: 60 }),
    env: { MLX_DSPARK_API_KEY: "sesame", MLX_DSPARK_STREAM_KEEPALIVE_S: "0.02" },
  });
  const running = box.run(
    ...["serve", "--port=0", "--default-max-tokens", "5", "--default-temperature", "0.4", "--context-window", "100"],
    ...["--max-body-mb", "0.001", "--cors-origin", "https://app.example", "--drain-seconds", "0"],
  );
  const url = await urlOf(box);
  await until(() => box.stderr().includes("ready\n"));
  expect(box.engine.loads[0]?.contextWindow).toBe(100);
  expect((await fetch(`${url}/v1/models`)).status).toBe(401);
  const headers = { authorization: "Bearer sesame", origin: "https://app.example" };
  const stream = { method: "POST", headers, body: JSON.stringify({ prompt: "hi", stream: true }) };
  const reply = await fetch(`${url}/v1/completions`, stream);
  expect(reply.headers.get("access-control-allow-origin")).toBe("https://app.example");
  expect(await reply.text()).toContain(": keepalive");
  expect(box.engine.requests[0]).toMatchObject({ maxNewTokens: 5, sampling: { temperature: 0.4 } });
  const big = { method: "POST", headers, body: JSON.stringify({ prompt: "x".repeat(2000) }) };
  expect((await fetch(`${url}/v1/completions`, big)).status).toBe(413);
  expect(box.stderr()).not.toContain("sesame");
  box.signal("SIGINT");
  expect(await running).toBe(0);
});

test("thinking and tool calls follow the flags", async () => {
  const box = cliBox({
    script: () => writes('<think>x</think>\n\n<tool_call>{"name":"f","arguments":{}}</tool_call>'),
  });
  box.text.supportsReasoningEffort = true;
  const running = box.run("serve", "--port=0", "--no-thinking", "--reasoning-effort", "xhigh", "--tool-format", "none");
  const url = await urlOf(box);
  await until(() => box.stderr().includes("ready\n"));
  const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
  const body = JSON.stringify({ messages: [{ role: "user", content: "hi" }], tools });
  const reply: unknown = await (await fetch(`${url}/v1/chat/completions`, { method: "POST", body })).json();
  expect(box.text.rendered[0]).toMatchObject({ enableThinking: false });
  expect(at(reply, "choices", 0, "message", "content")).toBe('<tool_call>{"name":"f","arguments":{}}</tool_call>');
  const wish = { messages: [{ role: "user", content: "hi" }], enable_thinking: true };
  await fetch(`${url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(wish) });
  expect(box.text.rendered[1]).toMatchObject({ enableThinking: true, reasoningEffort: "xhigh" });
  box.signal("SIGINT");
  expect(await running).toBe(0);
});

test("--open shows the page with the system's own program, or says where it is", async () => {
  using opener = fakeClient(process.platform === "darwin" ? "open" : "xdg-open");
  for (const env of [opener.env, { PATH: "" }]) {
    const box = cliBox({ env });
    const running = box.run("serve", "--port", "0", "--no-model", "--open");
    const url = await urlOf(box);
    if (env.PATH === "") await until(() => box.stderr().includes(`it is at ${url}/openapi`));
    else {
      await until(() => opener.notes() !== null);
      expect(opener.notes()?.args).toEqual([`${url}/openapi`]);
    }
    box.signal("SIGINT");
    expect(await running).toBe(0);
  }
});

test("--no-model starts empty", async () => {
  const box = cliBox();
  const running = box.run("serve", "--port", "0", "--no-model");
  const url = await urlOf(box);
  expect(await (await fetch(`${url}/health`)).json()).toMatchObject({ status: "no_model", loading: false });
  expect(box.engine.loads).toEqual([]);
  box.signal("SIGINT");
  expect(await running).toBe(0);
});

describe("failures", () => {
  test("a busy port is exit 1 with the port, before anything is loaded", async () => {
    const other = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
    const box = cliBox();
    expect(await box.run("serve", "--port", String(other.port), "--model", "m")).toBe(1);
    expect(box.stderr()).toContain(`port ${other.port}`);
    expect(box.engine.loads).toEqual([]);
    expect(box.engine.shutdowns).toEqual([0]);
    await other.stop(true);
  });

  test("a load that fails ends the server with exit 1", async () => {
    const box = cliBox();
    box.engine.loading = () => Promise.reject(new Error("no such repository"));
    expect(await box.run("serve", "--port", "0", "--model", "a/b")).toBe(1);
    expect(box.stderr()).toContain("could not load a/b: no such repository");
    const url = await urlOf(box);
    await expect(fetch(`${url}/health`)).rejects.toThrow();
  });

  test("a bad keep-alive setting is exit 2", async () => {
    const box = cliBox({ env: { MLX_DSPARK_STREAM_KEEPALIVE_S: "soon" } });
    expect(await box.run("serve", "--port", "0")).toBe(2);
    expect(box.stderr()).toContain("MLX_DSPARK_STREAM_KEEPALIVE_S");
  });

  test("a second signal ends the process at once", async () => {
    const box = cliBox({ script: () => writes("x", { endless: true, stepMs: 5 }) });
    const running = box.run("serve", "--port", "0", "--drain-seconds", "1");
    const url = await urlOf(box);
    await until(() => box.stderr().includes("ready\n"));
    void fetch(`${url}/v1/chat/completions`, BODY).catch(() => undefined);
    await until(() => box.engine.active === 1);
    box.signal("SIGINT");
    await Bun.sleep(5);
    box.signal("SIGINT");
    expect(box.exits).toEqual([130]);
    expect(await running).toBe(0);
  });
});
