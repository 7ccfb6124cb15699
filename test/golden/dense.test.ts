/**
 * The golden checkpoints of the dense families: every vector that a case states, at the tolerance that it states. On a
 * CPU device all floats are widened to float32 at load, so packed and half-precision cases are held to their f32_*
 * vectors; float32 cases, and one pass in the file's own dtypes, to the plain ones (models-dense.md §9).
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { int32Array, liveArrays, type MlxArray, scope, toFloat32 } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { reshape, slice, transpose } from "../../src/mlx/ops.ts";
import { type LoadedTarget, loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import { type LayerState, StepBatch } from "../../src/nn/layer-state.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import {
  type Expected,
  goldenCases,
  goldenRoot,
  maxDifference,
  readExpected,
  relativeDifference,
} from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";

interface Case {
  readonly dtype: "f32" | "bf16" | "f16";
  readonly tap_layers: readonly number[];
  readonly prompt_ids: readonly number[];
  readonly step_ids: readonly number[];
  readonly multi_ids: readonly number[];
  readonly rollback_trim: number;
  readonly after_id: number;
  readonly chunk_split: number;
  readonly long_ids?: readonly number[];
  readonly greedy_prompt_ids: readonly number[];
  readonly greedy_ids: readonly number[];
  readonly f32_greedy_ids?: readonly number[];
  readonly tolerance: { readonly logits: number; readonly hidden: number };
  readonly tolerance_f32?: { readonly logits: number; readonly hidden: number };
  readonly kv8_group_size?: number;
}

interface Outputs {
  readonly logits: Float32Array;
  readonly taps: Float32Array;
  readonly norm: Float32Array;
}

/** One row fed piece by piece. */
class Row {
  readonly states: LayerState[];
  length = 0;

  private readonly model: TargetModel;

  constructor({ model, stateLayout }: LoadedTarget, kvBits: 0 | 8 = 0) {
    this.model = model;
    this.states = model.newStates(kvStates(kvBits, stateLayout), 4096);
  }

  feed(ids: readonly number[], taps: readonly number[], rows: "all" | "last" = "all"): Outputs {
    const out = scope(() => {
      const batch = new StepBatch([{ states: this.states, count: ids.length, offset: this.length }]);
      const { hidden, taps: tapped } = this.model.forward(int32Array(ids), batch, taps);
      const wanted = rows === "all" ? hidden : lastRow(hidden, ids.length, this.model.hiddenSize);
      return {
        logits: toFloat32(this.model.logits(wanted)),
        taps: tapped === null ? new Float32Array(0) : toFloat32(byLayer(tapped, taps.length, ids.length)),
        norm: toFloat32(this.model.norm(wanted)),
      };
    });
    this.length += ids.length;
    return out;
  }

  trim(count: number): void {
    for (const state of this.states) state.trim(count);
    this.length -= count;
  }

  dispose(): void {
    for (const state of this.states) state.dispose();
  }
}

/** [R, taps·hidden] → the vectors' [taps, R, hidden] */
function byLayer(tapped: MlxArray, taps: number, rows: number): MlxArray {
  return transpose(reshape(tapped, [rows, taps, -1]), [1, 0, 2]);
}

function lastRow(hidden: MlxArray, count: number, width: number): MlxArray {
  return slice(hidden, [count - 1, 0], [count, width]);
}

function argmax(values: Float32Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if ((values[i] as number) > (values[best] as number)) best = i;
  return best;
}

/** All vectors of a case by name, as this model computes them. */
function computeVectors(target: LoadedTarget, golden: Case): Map<string, Float32Array> {
  const vectors = new Map<string, Float32Array>();
  const row = new Row(target);
  const prompt = row.feed(golden.prompt_ids, golden.tap_layers);
  vectors.set("prompt_logits", prompt.logits);
  vectors.set("prompt_norm", prompt.norm);
  vectors.set("prompt_taps", prompt.taps);
  const steps = golden.step_ids.map((id) => row.feed([id], []).logits);
  vectors.set("step_logits", joined(steps));
  const multi = row.feed(golden.multi_ids, golden.tap_layers);
  vectors.set("multi_logits", multi.logits);
  vectors.set("multi_taps", multi.taps);
  row.trim(golden.rollback_trim);
  vectors.set("after_logits", row.feed([golden.after_id], []).logits);
  row.dispose();

  const chunked = new Row(target);
  chunked.feed(golden.prompt_ids.slice(0, golden.chunk_split), []);
  vectors.set("chunk_last_logits", chunked.feed(golden.prompt_ids.slice(golden.chunk_split), [], "last").logits);
  chunked.dispose();

  if (golden.long_ids !== undefined) {
    const long = new Row(target);
    vectors.set("long_last_logits", long.feed(golden.long_ids, [], "last").logits);
    long.dispose();
  }

  if (golden.kv8_group_size !== undefined) {
    const quantized = new Row(target, 8);
    quantized.feed(golden.prompt_ids, []);
    vectors.set("kv8_step_logits", joined(golden.step_ids.map((id) => quantized.feed([id], []).logits)));
    vectors.set("kv8_multi_logits", quantized.feed(golden.multi_ids, []).logits);
    quantized.dispose();
  }
  return vectors;
}

function joined(parts: readonly Float32Array[]): Float32Array {
  return Float32Array.from(parts.flatMap((part) => [...part]));
}

function greedy(target: LoadedTarget, prompt: readonly number[], count: number): number[] {
  const row = new Row(target);
  const out: number[] = [];
  let next = argmax(row.feed(prompt, [], "last").logits);
  out.push(next);
  while (out.length < count) {
    next = argmax(row.feed([next], []).logits);
    out.push(next);
  }
  row.dispose();
  return out;
}

/**
 * What packed products with 16-bit activations may differ by, as root mean square relative to the vector
 * (cpu-backend.md §2.1: 7e-5 over a model). Under 8-bit keys such a difference moves some code by a whole step.
 */
const A16_RELATIVE = 2e-4;
const A16_RELATIVE_KV8 = 5e-3;

/** As expectVectors, but by the relative tolerance of the fused backend's packed products. */
function expectNear(expected: Map<string, Expected>, computed: Map<string, Float32Array>, prefix: string): void {
  let compared = 0;
  for (const [name, values] of computed) {
    const golden = expected.get(prefix + name);
    if (golden === undefined) continue;
    const limit = name.startsWith("kv8") ? A16_RELATIVE_KV8 : A16_RELATIVE;
    const off = relativeDifference(values, golden.values);
    expect({ name, off: off <= limit ? 0 : off }).toEqual({ name, off: 0 });
    compared++;
  }
  expect(compared).toBeGreaterThanOrEqual(6);
}

/** Compares each expected vector with `prefix` that this engine computes; fails when there is none. */
function expectVectors(
  expected: Map<string, Expected>,
  computed: Map<string, Float32Array>,
  prefix: string,
  tolerance: { readonly logits: number; readonly hidden: number },
): void {
  let compared = 0;
  for (const [name, values] of computed) {
    const golden = expected.get(prefix + name);
    if (golden === undefined) continue;
    const limit = name.endsWith("taps") || name.endsWith("norm") ? tolerance.hidden : tolerance.logits;
    expect({
      name,
      off: maxDifference(values, golden.values) <= limit ? 0 : maxDifference(values, golden.values),
    }).toEqual({ name, off: 0 });
    compared++;
  }
  expect(compared).toBeGreaterThanOrEqual(6);
}

const root = goldenRoot("dense");
const cases = goldenCases("dense", ["llama", "qwen2", "qwen3"]);

beforeAll(openTestMlx);
afterAll(() => expect(liveArrays()).toBe(0));

test("the dense golden set is there", () => {
  expect(cases.length).toBeGreaterThanOrEqual(16);
});

describe.each(cases)("golden dense %s", (name) => {
  const dir = join(root, name);
  const golden = JSON.parse(readFileSync(join(dir, "expected.json"), "utf8")) as Case;
  const expected = readExpected(join(dir, "expected.safetensors"));
  const prefix = golden.dtype === "f32" ? "" : "f32_";

  test.each(["stock", "fused"])("float32 activations, %s ops", (backend) => {
    const { compute, dtype } = chooseCompute({ MLX_DSPARK_CPU: backend });
    const target = loadTarget(dir, compute, { dtype });
    const vectors = computeVectors(target, golden);
    if (backend === "fused" && target.quantization !== null) expectNear(expected, vectors, prefix);
    else expectVectors(expected, vectors, prefix, golden.tolerance_f32 ?? golden.tolerance);
    const wanted = golden.f32_greedy_ids ?? golden.greedy_ids;
    expect(greedy(target, golden.greedy_prompt_ids, wanted.length)).toEqual([...wanted]);
    target.model.dispose();
    expect([liveArrays(), liveCpuObjects()]).toEqual([0, 0]);
  });

  test("the file's own dtypes, bit for bit: same ops in the same order", () => {
    const target = loadTarget(dir, stockCompute(null), { dtype: null });
    const exact = { logits: 0, hidden: 0 };
    // Tables of scaled rotations are rounded from float64 here; a window stands in time order, not in ring order.
    const reordered = name === "llama-f32" || name.includes("yarn") || name === "llama-swa-f32";
    expectVectors(expected, computeVectors(target, golden), "", reordered ? golden.tolerance : exact);
    target.model.dispose();
  });
});
