/** `benchmark` of the compiled executable on a tiny model: the JSON, equal texts, a mode without a drafter. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { requireExecutable, run, TINY_MODEL, temporaryCache } from "./executable.ts";

const cache = temporaryCache();
beforeAll(requireExecutable);
afterAll(() => cache.remove());

interface RunJson {
  readonly run: string;
  readonly tok_s: number;
  readonly decode_tok_s: number;
  readonly accept: number;
  readonly per_prompt: Readonly<Record<string, { readonly tok_s: number; readonly tokens: number }>>;
  readonly identical_to_baseline: unknown;
  readonly lossless: boolean;
  readonly replay: { readonly tokens: number; readonly argmax_equal: number; readonly misranked: number } | null;
}

test("lookup and plain steps write the same, and the mode without a drafter is skipped with its reason", async () => {
  const args = ["--model", TINY_MODEL, "--offline", "--max-new-tokens", "48", "--verify-lossless", "--json", "-"];
  const result = await run(cache.path, ["benchmark", ...args]);
  expect(result.stderr).toContain("rows are the means of chat, code and math");
  expect(result.exitCode).toBe(0);
  const json = JSON.parse(result.stdout) as {
    runs: readonly RunJson[];
    skipped: readonly { mode: string; reason: string }[];
  };
  expect(json.skipped).toMatchObject([
    { mode: "dspark", reason: expect.stringContaining("no dspark drafter is known") },
  ]);
  expect(json.runs.map(({ run: label }) => label)).toEqual(["baseline", "lookup"]);
  for (const one of json.runs) {
    expect(Object.keys(one.per_prompt)).toEqual(["chat", "code", "math", "copy"]);
    expect(one.tok_s).toBeGreaterThan(0);
    expect(one.decode_tok_s).toBeGreaterThanOrEqual(one.tok_s);
    expect(one.accept).toBeGreaterThanOrEqual(1);
    expect(one.identical_to_baseline).toBe(true);
    expect(one.lossless).toBe(true);
    const tokens = Object.values(one.per_prompt).reduce((sum, prompt) => sum + prompt.tokens, 0);
    expect(one.replay).toMatchObject({ tokens, argmax_equal: tokens, misranked: 0 });
  }
}, 120_000);
