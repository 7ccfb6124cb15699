/**
 * The real pair through the scheduler: the golden text in every mode, and the acceptance that the drafter's training
 * measured, round by round. More text is compared by `bench/lossless.ts`.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { goldenRoot } from "../support/golden.ts";
import { openTestMlx, repoRoot } from "../support/native.ts";
import { difference, type Pair, runAll, speculator } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { drafterAsTrained, loadSmollm2, smollm2Folder, smollm2Present } from "../support/smollm2.ts";
import { request } from "./tiny.ts";

setDefaultTimeout(240_000);
const LENGTH = 40;

const { prompts } = JSON.parse(readFileSync(join(goldenRoot("smollm2"), "smollm2-135m-q4_1.json"), "utf8")) as {
  readonly prompts: readonly { readonly ids: readonly number[]; readonly greedy: readonly number[] }[];
};
/** What the training recorded; beside the repository only. */
const record = join(repoRoot, "..", "shared/models/smollm2-135m-dspark/golden.json");

describe.skipIf(!smollm2Present)("SmolLM2 and its drafter (needs the GGUF of `make setup`)", () => {
  const folder = mkdtempSync(join(tmpdir(), "smollm2-speculation-"));
  let packed: Pair;
  let exact: Pair;

  beforeAll(async () => {
    openTestMlx();
    const dir = await smollm2Folder(join(folder, "mlx"));
    packed = loadSmollm2(dir, 4);
    exact = loadSmollm2(dir, 0, "fused", drafterAsTrained(join(folder, "drafter")));
  });
  afterAll(() => {
    packed.dispose();
    exact.dispose();
    rmSync(folder, { recursive: true });
    expect(liveArrays()).toBe(0);
    expect(liveCpuObjects()).toBe(0);
  });

  const policies: Readonly<Record<string, (pair: Pair) => Speculator>> = {
    "cap 1": ({ drafter }) => speculator({ drafter, cap: 1 }),
    "whole block": ({ drafter }) => speculator({ drafter }),
    "auto with lookup": ({ drafter }) => {
      const curves = new CostCurves({ verify: { 1: 10, 7: 16 }, drafter: { 1: 1, 6: 3 } });
      return speculator({
        drafter,
        cap: new CapController(curves, { maxCap: drafter.maxDraft }),
        lookup: true,
        curves,
      });
    },
    "cut by confidence": ({ drafter }) => speculator({ drafter, confidenceThreshold: 0.4 }),
    lookup: () => speculator({}),
  };

  test.each(Object.entries(policies))("the golden text, %s", (_, policy) => {
    const asked = prompts.map(({ ids }) => request({ promptIds: ids, maxNewTokens: LENGTH }));
    for (const [i, { ids }] of runAll(packed, asked, { maxBatch: 3, speculator: policy(packed) }).entries()) {
      expect({ i, difference: difference(ids, prompts[i]?.greedy.slice(0, ids.length) ?? []) }).toEqual({
        i,
        difference: "",
      });
      expect(ids.length).toBe(Math.min(LENGTH, prompts[i]?.greedy.length ?? 0));
    }
  });

  test("the sampled text of a seed", () => {
    const sampling = { ...GREEDY, temperature: 0.8, topP: 0.95, topK: 50, presencePenalty: 0.3 };
    const asked = prompts.map(({ ids }, i) =>
      request({ promptIds: ids, maxNewTokens: 24, sampling: { ...sampling, seed: String(i) } }),
    );
    const plain = runAll(packed, asked, { maxBatch: 1 });
    const policy = speculator({ drafter: packed.drafter, cap: 3, lookup: true });
    const drafted = runAll(packed, asked, { maxBatch: 3, speculator: policy });
    expect(drafted.map(({ ids }) => ids)).toEqual(plain.map(({ ids }) => ids));
  });

  test.skipIf(!existsSync(record))("the acceptance of every round (needs the drafter's record beside us)", () => {
    const { prompts: recorded } = JSON.parse(readFileSync(record, "utf8")) as {
      readonly prompts: readonly {
        readonly prompt_ids: readonly number[];
        readonly greedy_ids: readonly number[];
        readonly all_accepted_counts: readonly number[];
      }[];
    };
    const asked = recorded.map(({ prompt_ids, greedy_ids }) =>
      request({ promptIds: prompt_ids, maxNewTokens: Math.min(80, greedy_ids.length) }),
    );
    const rows = runAll(exact, asked, { maxBatch: 3, speculator: speculator({ drafter: exact.drafter }) });
    let rounds = 0;
    for (const [i, { ids, stats }] of rows.entries()) {
      const { greedy_ids: wanted = [], all_accepted_counts: counts = [] } = recorded[i] ?? {};
      expect({ i, difference: difference(ids, wanted.slice(0, ids.length)) }).toEqual({ i, difference: "" });
      // The last round of ours is clipped by the limit.
      const accepted = (stats?.acceptLengths ?? []).slice(0, -1).map((length) => length - 1);
      expect(accepted).toEqual(counts.slice(0, accepted.length));
      rounds += accepted.length;
    }
    expect(rounds).toBeGreaterThan(100);
  });
});
