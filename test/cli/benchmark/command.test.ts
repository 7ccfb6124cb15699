/** `benchmark` over a scripted engine: what is run in which order, what is said, what the JSON holds, how it ends. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { GenerateRequest, ModelInfo } from "../../../src/engine/protocol.ts";
import { at, until } from "../../server/harness.ts";
import { SCRIPTED_MODEL, writes } from "../../server/scripted-engine.ts";
import { type BoxOptions, cliBox } from "../harness.ts";

const folder = await mkdtemp(join(tmpdir(), "cli-benchmark-"));
afterAll(() => rm(folder, { recursive: true }));

const PAIR: ModelInfo = {
  ...SCRIPTED_MODEL,
  mode: "dspark",
  drafter: "scripted-dspark",
  drafting: {
    ...{ maxDraft: "auto", lookupDrafts: true, confidenceThreshold: 0, drafterWindow: null, drafterBytes: 1 },
    costs: { verify: { 1: 10, 4: 16 }, drafter: 2, overhead: 1, plain: 10, depth0: 512, depthSlope: null },
  },
};
const box = (options: BoxOptions = {}) => cliBox({ model: PAIR, ...options });
const armOf = ({ speculation }: GenerateRequest) =>
  speculation?.mode === "pair" ? `cap ${speculation.maxDraft}` : speculation?.mode;
/** Requests behind the warm-up, which has `modes` of them. */
const timed = (requests: readonly GenerateRequest[], modes: number) => requests.slice(modes);

describe("what is run", () => {
  test("every arm on every prompt and trial, each prompt beginning with another arm", async () => {
    const b = box();
    expect(await b.run("benchmark", "--trials", "2", "--prompts", "chat,copy", "--max-new-tokens", "9")).toBe(0);
    const arms = timed(b.engine.requests, 3).map(armOf);
    expect(arms).toEqual([
      ...["baseline", "cap 2", "cap auto", "lookup"],
      ...["cap 2", "cap auto", "lookup", "baseline"],
      ...["cap 2", "cap auto", "lookup", "baseline"],
      ...["cap auto", "lookup", "baseline", "cap 2"],
    ]);
    expect(b.engine.activePeak).toBe(1);
    for (const { sampling, maxNewTokens } of b.engine.requests) {
      expect(sampling.temperature).toBe(0);
      expect(maxNewTokens).toBe(9);
    }
    expect(b.text.conversations.map(({ messages }) => messages[0]?.content)).toContain("Explain how rainbows form.");
  });

  test("the pair is loaded for the first drafter mode, else for what is left", async () => {
    const loaded = async (modes: string) => {
      const b = box();
      await b.run("benchmark", "--modes", modes, "--prompts", "chat", "--model", "m", "--max-new-tokens", "1");
      return b.engine.loads.map(({ speculation }) => speculation.mode);
    };
    expect(await loaded("lookup,dspark")).toEqual(["dspark"]);
    expect(await loaded("dflash")).toEqual(["dflash"]);
    expect(await loaded("lookup")).toEqual(["lookup"]);
    expect(await loaded("auto")).toEqual(["auto"]);
    expect(await loaded("baseline")).toEqual(["baseline"]);
  });

  test("a drafter that cannot be had costs its mode and nothing else", async () => {
    const lookup: ModelInfo = { ...SCRIPTED_MODEL, mode: "lookup" };
    const b = box({ model: lookup });
    let tries = 0;
    b.engine.loading = () =>
      tries++ === 0 ? Promise.reject(new Error("no dspark drafter is known")) : Promise.resolve(lookup);
    expect(await b.run("benchmark", "--prompts", "chat", "--json", "-")).toBe(0);
    const json: unknown = JSON.parse(b.stdout());
    expect(at(json, "skipped")).toEqual([{ mode: "dspark", reason: "no dspark drafter is known" }]);
    expect(at(json, "runs", 0, "run")).toBe("baseline");
    expect(at(json, "runs", 1, "run")).toBe("lookup");
    expect(b.stderr()).toContain("dspark     skipped (no dspark drafter is known)");
    expect(b.engine.loads.map(({ speculation }) => speculation.mode)).toEqual(["dspark", "lookup"]);
  });

  test("a target that cannot be loaded fails", async () => {
    const b = box();
    b.engine.loading = () => Promise.reject(new Error("no such repository"));
    expect(await b.run("benchmark", "--model", "a/b")).toBe(1);
    expect(b.stderr()).toContain("could not load a/b: no such repository");
  });
});

describe("what is told", () => {
  test("--json has the keys of the reference, and ours", async () => {
    const b = box();
    expect(await b.run("benchmark", "--json", "-", "--max-new-tokens", "7")).toBe(0);
    const json: unknown = JSON.parse(b.stdout());
    expect(Object.keys(Object(json)).slice(0, 3)).toEqual(["device", "mlx", "target"]);
    expect(json).toMatchObject({ target: "scripted", version: "9.9.9", backend: "cpu (scripted)", skipped: [] });
    const names = ["baseline", "dspark cap=2", "dspark cap=auto", "lookup"];
    expect(names.map((_, i) => at(json, "runs", i, "run"))).toEqual(names);
    const [baseline, dspark] = [at(json, "runs", 0), at(json, "runs", 1)];
    // 7 tokens in 0.5 s of prefill and 2 s of decode.
    expect(baseline).toMatchObject({
      tok_s: 2.8,
      decode_tok_s: 3.5,
      accept: 1,
      identical_to_baseline: true,
      trials: 1,
    });
    expect(Object.keys(Object(at(baseline, "per_prompt")))).toEqual(["chat", "code", "math", "copy"]);
    expect(at(baseline, "per_prompt", "chat")).toMatchObject({ tok_s: 2.8, decode_tok_s: 3.5, accept: 1 });
    expect(dspark).toMatchObject({ speedup: 1, spread: [2.8, 2.8], settings: { speculation: { maxDraft: 2 } } });
    expect(b.stderr()).toContain("mlx-dspark 9.9.9 benchmark");
  });

  test("the table is the product; a file gets the JSON, and is compared with later", async () => {
    const file = join(folder, "saved.json");
    const b = box();
    expect(await b.run("benchmark", "--prompts", "chat", "--json", file)).toBe(0);
    const lines = b.stdout().split("\n");
    expect(lines[0]).toBe("mlx-dspark 9.9.9 benchmark");
    expect(b.stdout()).toContain("lookup drafts  on (pair default)");
    expect(lines.some((line) => /^dspark cap=2 +2\.8 +3\.5 +1\.00× \(1\.00×\) +1\.00 +yes$/.test(line))).toBe(true);
    const saved = await Bun.file(file).json();
    saved.runs[0].tok_s = 1.4;
    saved.runs.push({ run: "dflash cap=2", tok_s: 5 });
    await Bun.write(file, JSON.stringify(saved));
    const again = box();
    expect(await again.run("benchmark", "--prompts", "chat", "--peer-json", file)).toBe(0);
    expect(again.stdout()).toContain("  baseline: tok/s 2.00× · decode 1.00× · accept 1.00 against 1.00");
    expect(again.stdout()).toContain("  dflash cap=2: not run here");
  });

  test("an arm that writes another text: where, which tokens, the margin, and exit 1", async () => {
    const b = box({ script: ({ speculation }) => writes(speculation?.mode === "lookup" ? "Helps." : "Hello.") });
    expect(await b.run("benchmark", "--modes", "lookup", "--prompts", "math", "--json", "-")).toBe(1);
    const json: unknown = JSON.parse(b.stdout());
    expect(at(json, "runs", 1, "lossless")).toBe(false);
    expect(at(json, "runs", 1, "identical_to_baseline")).toMatchObject([
      { prompt: "math", first_diff: 3, reference_token: 108, arm_token: 112, kind: "fail", margin: 0 },
    ]);
    expect(b.stderr()).toContain("NO: math from token 3 on: id 112 for 108");
  });

  test("--verify-lossless reads every text again and ranks its tokens", async () => {
    const b = box();
    expect(await b.run("benchmark", "--modes", "lookup", "--prompts", "chat", "--verify-lossless", "--json", "-")).toBe(
      0,
    );
    const json: unknown = JSON.parse(b.stdout());
    const replay = { tokens: 7, argmax_equal: 7, max_gap_at_mismatch: 0, misranked: 0 };
    expect([at(json, "runs", 0, "replay"), at(json, "runs", 1, "replay")]).toEqual([replay, replay]);
    expect(b.engine.requests.filter(({ topLogprobs }) => topLogprobs === 2).length).toBe(2);
    expect(b.engine.replayed.length).toBe(2);
  });
});

describe("what is refused", () => {
  test.each([
    [["--modes", "eagle"], "--modes takes"],
    [["--caps", "two"], "--caps takes"],
    [["--caps", ""], "--caps must name"],
    [["--prompts", "poem"], "--prompts takes"],
    [["--trials", "0"], "--trials must be"],
    [["--peer-json", join(folder, "nowhere.json")], "cannot read --peer-json"],
    [["--mode", "dspark"], "unknown flag --mode"],
  ])("%p is a usage error", async (args, message) => {
    const b = box();
    expect(await b.run("benchmark", ...args)).toBe(2);
    expect(b.stderr()).toContain(message);
    expect(b.engine.loads).toEqual([]);
  });

  test("a file that is no benchmark", async () => {
    const file = join(folder, "other.json");
    for (const text of ["{", "{}", '{"runs":[{}]}', "[]", "null"]) {
      await Bun.write(file, text);
      const b = box();
      expect(await b.run("benchmark", "--peer-json", file)).toBe(1);
      expect(b.stderr()).toContain("is no saved benchmark");
    }
  });

  test("Ctrl-C ends it with 130", async () => {
    const b = box({ script: () => ({ ids: [97], endless: true, stepMs: 2 }) });
    const running = b.run("benchmark", "--max-new-tokens", "4000");
    await until(() => b.engine.active === 1);
    b.signal("SIGINT");
    expect(await running).toBe(130);
    expect(b.stdout()).toBe("");
  });
});
