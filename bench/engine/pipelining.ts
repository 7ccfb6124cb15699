/**
 * What scheduling step t+1 before reading step t brings: the same steps with and without it, in turns within one
 * process, for a model whose steps are mostly host work and for one whose steps are mostly computation. Beside it, how
 * many handles a step makes and whether they are all gone after it.
 *
 * Usage: bun bench/engine/pipelining.ts [--rounds N]
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { type InFlightStep, scheduleStep } from "../../src/decoding/step.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { native } from "../../src/mlx/native.ts";
import { type LoadedTarget, loadTarget } from "../../src/models/load.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { GREEDY } from "../../test/support/sampling.ts";
import { TINY_SHAPE, type TinyShape, writeTinyLlama } from "../../test/support/tiny-llama.ts";
import { type Times, timed } from "../support/clock.ts";
import type { Sample } from "../support/contender.ts";
import { pairedSpread, type Rounds, valuesOf } from "../support/paired.ts";
import { type Line, report } from "../support/report.ts";
import { roundsFlag } from "../support/rounds-flag.ts";
import { spread } from "../support/statistics.ts";

const MEDIUM_SHAPE: TinyShape = { layers: 6, hidden: 384, intermediate: 1024, heads: 6, kvHeads: 2, vocab: 2048 };
const PROMPT = Array.from({ length: 8 }, (_, i) => (7 * i + 3) % 200);
const WARMUP = 2;

function loadRandom(shape: TinyShape): LoadedTarget {
  const folder = mkdtempSync(join(tmpdir(), "tiny-llama-"));
  try {
    writeTinyLlama(folder, 1, shape);
    const { compute, dtype } = chooseCompute(process.env);
    return loadTarget(folder, compute, { dtype });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Times of a step over `steps` of them, the prompt's own left out. */
function decode({ model, stateLayout }: LoadedTarget, steps: number, pipelined: boolean): Times {
  const sampler = new Sampler(GREEDY, model.vocabSize, PROMPT);
  const limits = { maxNew: steps + 1, eos: new Set<number>(), topLogprobs: null };
  const row = new Row(PROMPT, model.newStates(kvStates(0, stateLayout), PROMPT.length + steps + 2), sampler, limits);
  scheduleStep(model, [{ row, kind: "prefill", count: PROMPT.length }], model.vocabSize).settle();
  const next = () => scheduleStep(model, [{ row, kind: "decode", count: 1 }], model.vocabSize);
  const times = timed(steps, () => {
    let inFlight: InFlightStep | null = null;
    while (!row.exhausted) {
      const step = next();
      if (pipelined) {
        inFlight?.settle();
        inFlight = step;
      } else step.settle();
    }
    inFlight?.settle();
  });
  row.dispose();
  return times;
}

/** Handles that the scopes of one step free. */
function handlesPerStep(target: LoadedTarget, steps: number): number {
  const freeArrays = native.dspark_free_arrays;
  let freed = 0;
  native.dspark_free_arrays = (handles, count) => {
    freed += count;
    return freeArrays(handles, count);
  };
  decode(target, steps, true);
  native.dspark_free_arrays = freeArrays;
  return freed / steps;
}

function compare(id: string, shape: TinyShape, steps: number): boolean {
  const target = loadRandom(shape);
  const rounds: Record<string, Sample>[] = [];
  let live = 0;
  for (let round = -WARMUP; round < count; round++) {
    const samples: Record<string, Sample> = {};
    for (const pipelined of round % 2 === 0 ? [true, false] : [false, true]) {
      samples[pipelined ? "pipelined" : "serial"] = { ...decode(target, steps, pipelined) };
    }
    if (round < 0) live = liveArrays();
    else rounds.push(samples);
  }
  if (liveArrays() !== live) throw new Error(`${liveArrays() - live} arrays are left over`);
  const handles = handlesPerStep(target, steps);
  target.model.dispose();
  return report(id, lines(rounds, handles), rounds);
}

function lines(rounds: Rounds, handles: number): Line[] {
  const ratio = (measured: string) => pairedSpread(rounds, ["pipelined", "serial"], measured, (a, b) => a / b);
  return [
    { name: "pipelined / serial, wall per step", unit: "×", value: ratio("wall_ns") },
    { name: "pipelined / serial, CPU of all threads", unit: "×", value: ratio("process_ns") },
    {
      name: "pipelined, wall per step",
      unit: "µs",
      value: spread(valuesOf(rounds, "pipelined", "wall_ns").map((nanoseconds) => nanoseconds / 1000)),
    },
    { name: "handles made and freed per step", unit: "", value: { p10: handles, median: handles, p90: handles } },
  ];
}

const count = roundsFlag(15);
openTestMlx();
const held = [
  compare("engine-pipelining-tiny", TINY_SHAPE, 200),
  compare("engine-pipelining-medium", MEDIUM_SHAPE, 60),
];
if (held.includes(false)) process.exitCode = 1;
