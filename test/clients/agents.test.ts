/**
 * Claude Code, pi and Codex themselves, started by `mlx-dspark`, on the model that is inside it: a turn completes, a tool is
 * run and its result taken, and nothing is asked of another machine. What the model says is asserted only where it cannot
 * help saying it.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import type { RunningServer } from "../e2e/executable.ts";
import { type ClientRun, clientBox, installed } from "./client.ts";
import { ANSWER, ECHO, pleaseCall, QUESTION, serveSmollm2 } from "./smollm2.ts";

const [claude, pi, codex] = [installed("claude"), installed("pi"), installed("codex")];
/** Codex's prompt has four thousand tokens in the model's words. */
const LIMIT_MS = 110_000;

let server: RunningServer;
beforeAll(async () => {
  server = await serveSmollm2();
});
afterAll(() => server[Symbol.asyncDispose]());

const title = (name: string, skipped: string | null) => (skipped === null ? name : `${name} (skipped: ${skipped})`);

/** The JSON lines of an output; others are left out. */
function jsonLines(text: string): Record<string, unknown>[] {
  return text
    .split("\n")
    .flatMap((line) => (line.startsWith("{") ? [JSON.parse(line) as Record<string, unknown>] : []));
}

function expectCompleted(run: ClientRun): void {
  // Together, so that a failure shows all of it.
  expect({ ...run, exitCode: run.exitCode, timedOut: run.timedOut }).toMatchObject({ exitCode: 0, timedOut: false });
}

describe.skipIf(claude.skipped !== null)(title("Claude Code", claude.skipped), () => {
  const ask = ["--output-format", "json", "-p"];

  test("a turn, on a server that starts and ends with it", async () => {
    await using box = await clientBox(claude);
    const run = await box.run(["claude", "--lean", "--offline", "--", ...ask, QUESTION], LIMIT_MS);
    expectCompleted(run);
    expect(run.stderr).toMatch(/claude code -> http:\/\/127\.0\.0\.1:\d+ {2}· {2}model SmolLM2-135M-Instruct/);
    const [result] = jsonLines(run.stdout);
    expect(result).toMatchObject({ type: "result", subtype: "success", is_error: false, num_turns: 1 });
    expect(result?.result).toContain(ANSWER);
    expect(result?.modelUsage).toMatchObject({ "SmolLM2-135M-Instruct": { contextWindow: 8192 } });
    expect(box.outside).toEqual([]);
    const url = /claude code -> (\S+)/.exec(run.stderr)?.[1] ?? "";
    await expect(fetch(`${url}/health`)).rejects.toThrow();
  });

  test("a tool is run and its result taken", async () => {
    await using box = await clientBox(claude);
    const words = [...ask, pleaseCall("Bash", { command: ECHO }), "--allowedTools", "Bash(echo:*)"];
    const run = await box.run(["claude", "--lean", "--url", server.url, "--", ...words], LIMIT_MS);
    expectCompleted(run);
    const [result] = jsonLines(run.stdout);
    expect(result).toMatchObject({ subtype: "success", is_error: false, num_turns: 2, permission_denials: [] });
    expect(box.outside).toEqual([]);
  });
});

describe.skipIf(pi.skipped !== null)(title("pi", pi.skipped), () => {
  const env = { PI_OFFLINE: "1" };

  test("a turn, and no file of the user's", async () => {
    await using box = await clientBox(pi, env);
    const run = await box.run(["launch", "pi", "--url", server.url, "--", "-p", QUESTION], LIMIT_MS);
    expectCompleted(run);
    expect(run.stdout).toContain(ANSWER);
    const written = readdirSync(box.home, { recursive: true, encoding: "utf8" });
    expect(written.filter((path) => path.endsWith("models.json"))).toEqual([]);
    expect(box.outside).toEqual([]);
  });

  test("a tool is run and its result taken", async () => {
    await using box = await clientBox(pi, env);
    const words = ["--mode", "json", "-p", pleaseCall("bash", { command: ECHO })];
    const run = await box.run(["launch", "pi", "--url", server.url, "--", ...words], LIMIT_MS);
    expectCompleted(run);
    const events = jsonLines(run.stdout);
    expect(events.filter(({ type }) => type === "tool_execution_end")).toMatchObject([
      { toolName: "bash", isError: false },
    ]);
    expect(events.filter(({ type }) => type === "turn_end").length).toBe(2);
  });

  test("the file that is written on request works without the launcher's flags", async () => {
    await using box = await clientBox(pi, env);
    expectCompleted(await box.run(["launch", "pi", "--url", server.url, "--write-config"], LIMIT_MS));
    const listed = await box.run(["launch", "pi", "--url", server.url, "--", "--list-models", "SmolLM2"], LIMIT_MS);
    expectCompleted(listed);
    expect(`${listed.stdout}${listed.stderr}`).toContain("SmolLM2-135M-Instruct");
  });
});

describe.skipIf(codex.skipped !== null)(title("Codex", codex.skipped), () => {
  test("the profile that is written on request is read", async () => {
    await using box = await clientBox(codex);
    expectCompleted(await box.run(["launch", "codex", "--url", server.url, "--write-config"], LIMIT_MS));
    const words = ["--profile", "mlx-dspark", "mcp", "list"];
    expectCompleted(await box.run(["launch", "codex", "--url", server.url, "--", ...words], LIMIT_MS));
  });

  test("a turn", async () => {
    await using box = await clientBox(codex);
    const words = ["exec", "--skip-git-repo-check", "--json", QUESTION];
    const run = await box.run(["launch", "codex", "--url", server.url, "--", ...words], LIMIT_MS);
    expectCompleted(run);
    const events = jsonLines(run.stdout);
    expect(events.some(({ type }) => type === "turn.completed")).toBeTrue();
    const answers = events.flatMap(({ item }) => ((item as { type?: string })?.type === "agent_message" ? [item] : []));
    expect(answers).toMatchObject([{ text: expect.stringContaining(ANSWER) }]);
  });
});
