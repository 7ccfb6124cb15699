/** What is written around an answer and when a server is ready, for every mode (cli.md §3, §4). */
import { describe, expect, test } from "bun:test";
import { banner, footer } from "../../src/cli/footer.ts";
import { readyLines } from "../../src/cli/serve-banner.ts";
import type { ModelInfo, RequestStats } from "../../src/engine/protocol.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../src/server/options.ts";
import { SCRIPTED_MODEL } from "../server/scripted-engine.ts";

const STATS: RequestStats = {
  mode: "dspark",
  seed: "1",
  promptTokens: 10,
  cachedTokens: 0,
  completionTokens: 9,
  rounds: 4,
  acceptLengths: [3, 1, 2, 2],
  drafted: 8,
  accepted: 4,
  lookupRounds: 0,
  parkedRounds: 1,
  targetForwards: 5,
  cap: 2,
  acceptance: null,
  decayRatio: null,
  queueSeconds: 0,
  prefillSeconds: 0.5,
  decodeSeconds: 2,
  ttftSeconds: 0.5,
};
const DRAFTING = {
  maxDraft: "auto",
  lookupDrafts: true,
  confidenceThreshold: 0,
  drafterWindow: 4096,
  drafterBytes: 12e6,
  costs: null,
} as const;
const PAIR: ModelInfo = { ...SCRIPTED_MODEL, mode: "dspark", drafter: "scripted-dspark", drafting: DRAFTING };
const line = (stats: Partial<RequestStats>) => footer({ ...STATS, ...stats }, 9).split("\n")[1];

describe("footer", () => {
  test("a speculative answer says what its rounds committed", () => {
    expect(line({})).toBe(
      "  9 tokens · 2.50s · 3.6 tok/s end-to-end · 4.5 tok/s decode · prefill 0.50s · accept 2.00/round · 5 target fwds",
    );
  });

  test("lookup rounds and the controller's cap, where there are any", () => {
    expect(line({ lookupRounds: 7, acceptance: 0.812, cap: 5 })).toEndWith(
      "5 target fwds · 7 lookup rounds · auto-cap now 5 (p≈0.81)",
    );
  });

  test("a plain answer has no rounds to speak of", () => {
    expect(line({ mode: "baseline", cap: null })).toEndWith("prefill 0.50s");
  });
});

describe("banner", () => {
  test("the frame names mode and model; below it the drafter, if there is one", () => {
    expect(banner(SCRIPTED_MODEL).split("\n").slice(1, 2)).toEqual(["  ▶  Baseline (plain greedy)   ·   scripted-1b"]);
    const lines = banner(PAIR).split("\n");
    expect(lines[1]).toBe("  ▶  DSpark speculative   ·   scripted-1b");
    expect(lines[3]).toContain("drafter scripted-dspark · cap auto");
    expect(banner({ ...PAIR, drafting: { ...DRAFTING, maxDraft: 4, lookupDrafts: false } })).toContain(
      "cap 4 · lookup drafts off",
    );
  });

  test("serve says which drafter it uses and how", () => {
    const server = { url: "http://127.0.0.1:1", port: 1, stop: () => Promise.resolve() };
    const drafter = (model: ModelInfo) =>
      readyLines(model, server, DEFAULT_SERVER_OPTIONS).find((row) => row.startsWith("  drafter"));
    expect(drafter(SCRIPTED_MODEL)).toBe("  drafter   none");
    expect(drafter(PAIR)).toBe("  drafter   scripted-dspark (12.0 MB), max-draft auto, lookup drafts on, window 4096");
    const lookup = { ...DRAFTING, maxDraft: 6, drafterWindow: null, drafterBytes: 0 };
    expect(drafter({ ...SCRIPTED_MODEL, mode: "lookup", drafting: lookup })).toContain(
      "none: lookup drafts of up to 6",
    );
  });
});
