/** `generate` of the compiled executable: the embedded default, stdin, JSON, seeds, errors and their exit codes. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, mkdtempSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EXECUTABLE, requireExecutable, run, TINY_MODEL, temporaryCache } from "./executable.ts";

const cache = temporaryCache();
const generate = (...args: string[]) => run(cache.path, ["generate", "--offline", ...args]);
const tiny = (...args: string[]) => generate("--model", TINY_MODEL, ...args);

beforeAll(requireExecutable);
afterAll(() => cache.remove());

interface JsonAnswer {
  readonly text: string;
  readonly token_ids: readonly number[];
  readonly finish_reason: string;
  readonly x_mlx_dspark: { readonly mode: string; readonly prompt_tokens: number; readonly completion_tokens: number };
}

describe("the embedded default", () => {
  test("answers without a model being named, and says which one it is", async () => {
    const result = await generate("--prompt", "What is the capital of France?", "--max-new-tokens", "16");
    expect(result.exitCode).toBe(0);
    expect(result.stdout).toContain("Paris");
    expect(result.stderr).toContain("smollm2-135m");
    expect(result.stderr).toContain("--model");
    expect(result.stderr).toMatch(/tok\/s/);
  }, 120_000);
});

describe("a model folder", () => {
  test("--json is one object on stdout and nothing else", async () => {
    const result = await tiny("--prompt", "abc", "--max-new-tokens", "5", "--json");
    expect(result.exitCode).toBe(0);
    const answer = JSON.parse(result.stdout) as JsonAnswer;
    expect(answer.token_ids.length).toBeLessThanOrEqual(5);
    expect(["stop", "length"]).toContain(answer.finish_reason);
    expect(answer.x_mlx_dspark.completion_tokens).toBe(answer.token_ids.length);
  });

  test("the same seed gives the same text, another one another", async () => {
    const sampled = async (seed: string) => {
      const { stdout } = await tiny(
        "--prompt",
        "abc",
        "--max-new-tokens",
        "24",
        "--temperature",
        "1.5",
        "--seed",
        seed,
        "--json",
      );
      return (JSON.parse(stdout) as JsonAnswer).token_ids;
    };
    const [first, second, other] = await Promise.all([sampled("7"), sampled("7"), sampled("8")]);
    expect(second).toEqual(first);
    expect(other).not.toEqual(first);
  });

  test("the prompt from stdin equals the prompt as a flag", async () => {
    const args = ["generate", "--offline", "--model", TINY_MODEL, "--max-new-tokens", "6", "--json"];
    const piped = await run(cache.path, [...args, "--prompt", "-"], { stdin: "hello" });
    const given = await run(cache.path, [...args, "--prompt", "hello"]);
    expect((JSON.parse(piped.stdout) as JsonAnswer).token_ids).toEqual(
      (JSON.parse(given.stdout) as JsonAnswer).token_ids,
    );
  });

  test("Ctrl-C ends it with 130", async () => {
    const child = Bun.spawn(
      [
        EXECUTABLE,
        "generate",
        "--offline",
        "--model",
        TINY_MODEL,
        "--prompt",
        "x",
        "--max-new-tokens",
        "1900",
        "--temperature",
        "1.9",
      ],
      { env: { MLX_DSPARK_CACHE: cache.path }, stdout: "pipe", stderr: "pipe" },
    );
    await child.stdout.getReader().read();
    child.kill("SIGINT");
    expect(await child.exited).toBe(130);
  });
});

describe("what cannot run", () => {
  test.each([
    [["--model", "/nowhere/at/all"], 1, "no model at"],
    [["--model", "someone/model"], 1, "offline"],
    [["--model", "qwen3-99b"], 1, "no model"],
    [["--no-such-flag"], 2, "no-such-flag"],
    [["--max-new-tokens", "many"], 2, "max-new-tokens"],
  ])("%p exits with %d", async (args, code, message) => {
    const result = await generate(...args);
    expect(result.exitCode).toBe(code);
    expect(result.stderr).toContain(message);
    expect(result.stdout).toBe("");
  });

  test("a truncated checkpoint is named, with its file", async () => {
    const folder = mkdtempSync(join(tmpdir(), "truncated-"));
    cpSync(TINY_MODEL, folder, { recursive: true });
    truncateSync(join(folder, "model.safetensors"), 20_000);
    const result = await generate("--model", folder);
    expect(result.exitCode).toBe(1);
    expect(result.stderr).toContain("model.safetensors");
    expect(result.stderr).toMatch(/short|truncated|bytes/);
    rmSync(folder, { recursive: true });
  });

  test("an unknown command names the nearest one", async () => {
    const result = await run(cache.path, ["genrate"]);
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toContain("generate");
  });
});
