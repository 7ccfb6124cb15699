/** `generate`: what goes to stdout, what to stderr, and how it ends (cli.md §3). */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEFAULT_SPECULATION } from "../../src/engine/protocol.ts";
import { at, until } from "../server/harness.ts";
import { EOS, writes } from "../server/scripted-engine.ts";
import { cliBox } from "./harness.ts";

const folder = await mkdtemp(join(tmpdir(), "cli-generate-"));
afterAll(() => rm(folder, { recursive: true }));

describe("output", () => {
  test("stdout is the text; banner, notes and footer are on stderr, in their shapes", async () => {
    const box = cliBox();
    expect(await box.run("generate", "--prompt", "hi")).toBe(0);
    expect(box.stdout()).toBe("Hello.\n");
    const lines = box.stderr().split("\n");
    expect(lines[0]).toStartWith("no --model given: using smollm2-135m");
    expect(lines[1]).toBe("loading auto: target=smollm2-135m");
    expect(lines[2]).toBe("note: the template prints the time of day");
    expect(lines.slice(3)).toEqual([
      "=".repeat(64),
      "  ▶  Baseline (plain greedy)   ·   scripted-1b",
      "=".repeat(64),
      "-".repeat(64),
      "  7 tokens · 2.50s · 2.8 tok/s end-to-end · 3.5 tok/s decode · prefill 0.50s",
      "-".repeat(64),
      "",
    ]);
    expect(box.engine.shutdowns).toEqual([0]);
  });

  test("thoughts go to stderr, dimmed on a terminal, and the answer alone to stdout", async () => {
    const script = () => writes("<think>Two words.</think>\n\nHello you");
    for (const argv of [["generate"], ["generate", "--no-stream"]]) {
      const pipe = cliBox({ script });
      expect(await pipe.run(...argv, "--prompt", "hi")).toBe(0);
      expect(pipe.stdout()).toBe("Hello you\n");
      expect(pipe.stderr()).toContain(`${"=".repeat(64)}\nTwo words.\n${"-".repeat(64)}`);
      const terminal = cliBox({ script, tty: true });
      expect(await terminal.run(...argv, "--prompt", "hi")).toBe(0);
      expect(terminal.stderr()).toContain("\u001b[2mTwo words.\n\u001b[22m");
      const plain = cliBox({ script, tty: true, env: { NO_COLOR: "1" } });
      expect(await plain.run(...argv, "--prompt", "hi")).toBe(0);
      expect(plain.stderr()).not.toContain("\u001b[2m");
    }
    const json = cliBox({ script });
    expect(await json.run("generate", "--json")).toBe(0);
    expect(JSON.parse(json.stdout())).toMatchObject({ text: "Hello you", reasoning: "Two words." });
  });

  test("--no-thinking and --reasoning-effort reach the template; a bare text is left whole", async () => {
    const box = cliBox();
    box.text.supportsReasoningEffort = true;
    expect(await box.run("generate", "--reasoning-effort", "low")).toBe(0);
    expect(box.text.rendered[0]).toMatchObject({ reasoningEffort: "low" });
    const quiet = cliBox();
    expect(await quiet.run("generate", "--no-thinking")).toBe(0);
    expect(quiet.text.rendered[0]).toMatchObject({ enableThinking: false });
    const bare = cliBox({ script: () => writes("<think>a</think>b") });
    expect(await bare.run("generate", "--no-chat-template", "--prompt", "x")).toBe(0);
    expect(bare.stdout()).toBe("<think>a</think>b\n");
  });

  test("text comes as it is made; --no-stream holds it back", async () => {
    const pieces: string[] = [];
    for (const extra of [[], ["--no-stream"]]) {
      const box = cliBox({ script: () => writes("abcd", { stepMs: 10 }) });
      const running = box.run("generate", "--prompt", "hi", ...extra);
      await until(() => box.engine.active === 1);
      await Bun.sleep(25);
      pieces.push(box.stdout());
      await running;
      expect(box.stdout()).toBe("abcd\n");
    }
    expect(pieces[0]?.length).toBeGreaterThan(0);
    expect(pieces[0]?.length).toBeLessThan(4);
    expect(pieces[1]).toBe("");
  });

  test("--json: stdout is one object and nothing else", async () => {
    const box = cliBox();
    expect(await box.run("generate", "--prompt", "hi", "--json", "--stop", "llo")).toBe(0);
    const json: unknown = JSON.parse(box.stdout());
    expect(Object.keys(Object(json))).toEqual(["text", "token_ids", "finish_reason", "x_mlx_dspark"]);
    expect(at(json, "text")).toBe("He");
    expect(at(json, "token_ids")).toEqual([72, 101, 108, 108, 111]);
    expect(at(json, "finish_reason")).toBe("stop");
    expect(at(json, "x_mlx_dspark", "completion_tokens")).toBe(5);
    expect(box.stdout().trimEnd()).not.toContain("\n");
  });
});

describe("prompt and sampling", () => {
  test("the request is what the flags say", async () => {
    const box = cliBox();
    await box.run(
      ...["generate", "--prompt", "hi", "--system", "Be short.", "--max-new-tokens=9", "--temperature", "0.5"],
      ...["--top-p", "0.9", "--top-k", "7", "--min-p", "0.1", "--seed", "-1", "--model", "org/name", "--offline"],
      ...["--threads", "2", "--kv-bits", "8"],
    );
    expect(box.engine.loads[0]).toEqual({
      model: "org/name",
      offline: true,
      kvBits: 8,
      speculation: DEFAULT_SPECULATION,
      contextWindow: null,
      threads: 2,
      maxBatch: 1,
      maxQueue: 1,
    });
    expect(box.engine.requests[0]).toMatchObject({
      maxNewTokens: 9,
      eosIds: [EOS],
      sampling: { temperature: 0.5, topP: 0.9, topK: 7, minP: 0.1, seed: String(2n ** 64n - 1n) },
    });
    expect(box.text.conversations[0]?.messages).toEqual([
      { role: "system", content: "Be short." },
      { role: "user", content: "hi" },
    ]);
    expect(box.stderr()).not.toContain("no --model given");
  });

  test("without a template the bare text goes in", async () => {
    const box = cliBox();
    await box.run("generate", "--prompt", "hi", "--no-chat-template");
    expect(box.text.conversations).toEqual([]);
    expect(Array.from(box.engine.requests[0]?.promptIds ?? [])).toEqual([104, 105]);
  });

  test("stdin, files, the escape, the default", async () => {
    const path = join(folder, "prompt.txt");
    await Bun.write(path, "from a file\n");
    const prompts: unknown[] = [];
    const lines = [["--prompt", "-"], ["--prompt", `@${path}`], ["--prompt-file", path], ["--prompt", "@@home"], []];
    for (const line of lines) {
      const box = cliBox({ stdin: "from stdin" });
      expect(await box.run("generate", ...line)).toBe(0);
      prompts.push(box.text.conversations[0]?.messages[0]?.content);
    }
    const fallback = "Explain how rainbows form, in a few sentences.";
    expect(prompts).toEqual(["from stdin", "from a file\n", "from a file\n", "@home", fallback]);
  });

  test("old names of --model, and the environment's offline switch", async () => {
    const names: unknown[] = [];
    for (const line of [
      ["--target", "a/b"],
      ["--family", "qwen3"],
      ["--model", "m", "--target", "t"],
    ]) {
      const box = cliBox({ env: { HF_HUB_OFFLINE: "1" } });
      await box.run("generate", "--prompt", "hi", ...line);
      names.push(box.engine.loads[0]?.model);
      expect(box.engine.loads[0]?.offline).toBe(true);
    }
    expect(names).toEqual(["a/b", "qwen3-4b", "m"]);
  });

  test("--trust-remote-code is accepted and said to do nothing", async () => {
    const box = cliBox();
    expect(await box.run("generate", "--prompt", "hi", "--trust-remote-code")).toBe(0);
    expect(box.stderr()).toContain("--trust-remote-code has no effect");
  });
});

describe("endings", () => {
  test("a load that fails is exit 1 with its reason, and the engine is ended", async () => {
    const box = cliBox();
    box.engine.loading = () => Promise.reject(new Error("no such repository"));
    expect(await box.run("generate", "--model", "a/b")).toBe(1);
    expect(box.stderr()).toContain("could not load a/b: no such repository");
    expect(box.stdout()).toBe("");
    expect(box.engine.shutdowns.length).toBe(1);
  });

  test("an engine failure is exit 1 with its message", async () => {
    const error = { kind: "internal" as const, message: "out of memory" };
    const box = cliBox({ script: () => writes("abc", { failure: { after: 1, error } }) });
    expect(await box.run("generate", "--prompt", "hi")).toBe(1);
    expect(box.stderr()).toContain("error: out of memory");
  });

  test("a prompt beyond the window is exit 1", async () => {
    const box = cliBox();
    expect(await box.run("generate", "--prompt", "x".repeat(5000))).toBe(1);
    expect(box.stderr()).toContain("prompt is too long: 5007 tokens > 4096 maximum");
  });

  test("Ctrl-C while it writes: the text so far, the footer, exit 130", async () => {
    const box = cliBox({ script: () => ({ ids: [97], endless: true, stepMs: 2 }) });
    const running = box.run("generate", "--prompt", "hi", "--max-new-tokens", "2000");
    await until(() => box.stdout().length > 3);
    box.signal("SIGINT");
    expect(await running).toBe(130);
    expect(box.stdout()).toMatch(/^a+\n$/);
    expect(box.stderr()).toMatch(/ {2}\d+ tokens · /);
    expect(box.engine.cancelled.length).toBe(1);
    expect(box.exits).toEqual([]);
  });

  test("Ctrl-C while it loads: exit 130 at once, and the engine is ended", async () => {
    const box = cliBox();
    box.engine.loading = () => new Promise(() => undefined);
    const running = box.run("generate", "--prompt", "hi");
    await until(() => box.engine.loads.length === 1);
    box.signal("SIGINT");
    expect(await running).toBe(130);
    expect(box.engine.shutdowns).toEqual([0]);
    expect(box.stdout()).toBe("");
  });

  test("an engine that does not answer cannot hold an interrupted command", async () => {
    const box = cliBox();
    box.engine.loading = () => new Promise(() => undefined);
    box.engine.shutdown = () => new Promise(() => undefined);
    const running = box.run("generate", "--prompt", "hi");
    await until(() => box.engine.loads.length === 1);
    box.signal("SIGINT");
    expect(await running).toBe(130);
  });

  test("a second Ctrl-C does not wait", async () => {
    const box = cliBox();
    box.engine.loading = () => new Promise(() => undefined);
    const running = box.run("generate", "--prompt", "hi");
    await until(() => box.engine.loads.length === 1);
    box.signal("SIGINT");
    box.signal("SIGINT");
    expect(box.exits).toEqual([130]);
    await running;
  });
});

describe("progress", () => {
  const step = (fraction: number) => ({
    phase: "download" as const,
    fraction,
    bytesDone: fraction * 2e6,
    bytesTotal: 2e6,
    bytesPerSecond: 5e5,
    detail: "model.safetensors",
  });

  async function stderrOf(tty: boolean): Promise<string> {
    const box = cliBox({ tty });
    box.engine.loading = (onProgress) => {
      for (let i = 0; i <= 100; i++) onProgress(step(i / 100));
      return Promise.resolve(box.engine.model);
    };
    await box.run("generate", "--prompt", "hi", "--model", "m");
    return box.stderr();
  }

  test("a line every ten per cent where nobody watches", async () => {
    const lines = (await stderrOf(false)).split("\n").filter((line) => line.startsWith("download"));
    expect(lines.length).toBe(11);
    expect(lines[5]).toContain("50 %");
    expect(lines[5]).toContain("1.0 MB of 2.0 MB");
  });

  test("one line, rewritten and taken away, on a terminal", async () => {
    const text = await stderrOf(true);
    expect(text.split("\r\u001b[K").length).toBe(103);
    const rewritten = text.split("\r\u001b[K").slice(1, -1);
    expect(rewritten.every((line) => [...line].length < 80 && !line.includes("\n"))).toBe(true);
  });
});
