/** The golden GGUF files end to end: converted, loaded and run, they give the logits of the exact float32 weights. */
import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import path from "node:path";
import { kvStates } from "../../../src/cache/state-factory.ts";
import { convertGguf } from "../../../src/hub/gguf/convert-gguf.ts";
import { int32Array, scope, toFloat32 } from "../../../src/mlx/array.ts";
import { loadTarget } from "../../../src/models/load.ts";
import { StepBatch } from "../../../src/nn/layer-state.ts";
import { stockCompute } from "../../../src/nn/stock.ts";
import { temporaryFolder } from "../../checkpoint/temporary-folder.ts";
import { maxDifference, readExpected } from "../../support/golden.ts";
import { openTestMlx, repoRoot } from "../../support/native.ts";
import { goldenCase, goldenDir, goldenNames } from "./fixtures.ts";

const root = temporaryFolder();
const hasMlx = existsSync(path.join(repoRoot, "build/native"));
const reason = hasMlx ? "" : " (skipped: build/native is absent; run the setup)";

describe.skipIf(!hasMlx)(`logits of GGUF files${reason}`, () => {
  test.each(goldenNames)("%s", async (name) => {
    openTestMlx();
    const golden = goldenCase(name);
    const dir = path.join(root, name);
    await convertGguf(path.join(goldenDir, `${name}.gguf`), dir);
    const { model } = loadTarget(dir, stockCompute("float32"), { dtype: "float32" });
    const states = model.newStates(kvStates(0), 64);
    let offset = 0;
    const feed = (ids: readonly number[]) => {
      const logits = scope(() => {
        const batch = new StepBatch([{ states, count: ids.length, offset }]);
        return toFloat32(model.logits(model.forward(int32Array(ids), batch, []).hidden));
      });
      offset += ids.length;
      return logits;
    };
    const prompt = feed(golden.prompt_ids);
    const steps = golden.step_ids.map((id) => feed([id]));
    const expected = readExpected(path.join(goldenDir, `${name}.expected.safetensors`));
    const tolerance = golden.tolerance.logits_exact_dequant_f32;
    const of = (key: string) => expected.get(key)?.values ?? new Float32Array(0);
    expect(maxDifference(prompt, of("prompt_logits"))).toBeLessThan(tolerance);
    const all = Float32Array.from(steps.flatMap((step) => [...step]));
    expect(maxDifference(all, of("step_logits"))).toBeLessThan(tolerance);
    for (const state of states) state.dispose();
    model.dispose();
  });
});
