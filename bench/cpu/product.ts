/**
 * Our side of `peers.ts`: the model as the engine holds it, on the backend that the engine chooses for this machine. A
 * decode step and a prompt are the engine's own steps (src/decoding/step.ts, one scheduled before the last is read; chunks
 * by the engine's policy), several rows are the forward of a verify round.
 * Usage: product.ts <model folder>
 */
import { PackedKv } from "../../src/cache/packed-kv.ts";
import { kvStates } from "../../src/cache/state-factory.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { type InFlightStep, scheduleStep } from "../../src/decoding/step.ts";
import { PrefillPolicy } from "../../src/engine/prefill-policy.ts";
import { evaluate, int32Array, scope } from "../../src/mlx/array.ts";
import { setCpuThreads } from "../../src/mlx/cpu.ts";
import { argmax } from "../../src/mlx/ops.ts";
import { loadTarget } from "../../src/models/load.ts";
import { type LayerState, StepBatch } from "../../src/nn/layer-state.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { GREEDY } from "../../test/support/sampling.ts";
import { answerBursts } from "../support/answer.ts";
import { type Times, timed } from "../support/clock.ts";
import { measuredMemory, type PromptMemory } from "./prompt-memory.ts";
import { type Dose, type Preparation, type Request, type Task, tokenAt } from "./task.ts";

const [folder = ""] = process.argv.slice(2);
openTestMlx();
const { compute, dtype } = chooseCompute(process.env);
const { model, stateLayout } = loadTarget(folder, compute, { dtype });
const chunks = new PrefillPolicy();
/** Sequences by length. */
const kept = new Map<number, readonly PackedKv[]>();

function tokens(from: number, count: number): Int32Array {
  return Int32Array.from({ length: count }, (_, i) => tokenAt(from + i));
}

function newRow(promptLength: number, states: readonly LayerState[], maxNew: number): Row {
  const limits = { maxNew, eos: new Set<number>(), topLogprobs: null };
  return new Row(tokens(0, promptLength), states, new Sampler(GREEDY, model.vocabSize, []), limits);
}

function forked(states: readonly LayerState[]): PackedKv[] {
  return states.map((state) => {
    if (!(state instanceof PackedKv)) throw new TypeError("the fused CPU backend is not in use: nothing to measure");
    return state.fork();
  });
}

/** The next `count` tokens of the row's prompt, in chunks as the engine's scheduler cuts them. */
function readPrompt(row: Row, count: number): void {
  for (let left = count; left > 0; ) {
    const chunk = chunks.chunk(left, false);
    const started = performance.now();
    scheduleStep(model, [{ row, kind: "prefill", count: chunk }], model.vocabSize).settle();
    chunks.measured(chunk, performance.now() - started);
    left -= chunk;
  }
}

/** What reading each sequence took beyond weights, keys and values. One thread: two only wait on a busy machine. */
function prepare({ contexts }: Preparation): PromptMemory {
  setCpuThreads(1);
  const memory: PromptMemory = {};
  for (const context of contexts) {
    const shorter = Math.max(0, ...kept.keys());
    const states = shorter === 0 ? model.newStates(kvStates(0, stateLayout), context + 1) : forked(keptStates(shorter));
    // A prompt of one token more: the kept ones are an inner chunk.
    const row = newRow(context + 1, states, 1);
    row.cached = shorter;
    Object.assign(
      memory,
      measuredMemory(`${shorter}..${context}`, () => readPrompt(row, context - shorter)),
    );
    kept.set(context, forked(states));
    row.dispose();
  }
  return memory;
}

function keptStates(context: number): readonly PackedKv[] {
  const states = kept.get(context);
  if (states === undefined) throw new RangeError(`no sequence of ${context} tokens was prepared`);
  return states;
}

function forwardRows(rows: number, context: number): void {
  const states = keptStates(context);
  scope(() => {
    const batch = new StepBatch([{ states, count: rows, offset: context }]);
    const { hidden } = model.forward(int32Array(tokens(context, rows)), batch);
    evaluate([argmax(model.logits(hidden), -1)]);
  });
  for (const state of states) state.trim(rows);
}

function decode(context: number, warm: number, runs: number): Times {
  // The row's last prompt token is not cached yet: its step chooses the first token.
  const states = forked(keptStates(context));
  for (const state of states) state.trim(1);
  const row = newRow(context, states, 1 + warm + runs);
  row.cached = context - 1;
  let inFlight: InFlightStep = scheduleStep(model, [{ row, kind: "prefill", count: 1 }], model.vocabSize);
  const steps = (count: number) => {
    for (let i = 0; i < count; i++) {
      const next = scheduleStep(model, [{ row, kind: "decode", count: 1 }], model.vocabSize);
      inFlight.settle();
      inFlight = next;
    }
  };
  steps(warm);
  // As many steps are waited for as are scheduled: the first is in flight already, the last stays so.
  const times = timed(runs, () => steps(runs));
  inFlight.settle();
  row.dispose();
  return times;
}

function prefill(count: number): void {
  const row = newRow(count, model.newStates(kvStates(0, stateLayout), count + 1), 1);
  readPrompt(row, count);
  row.dispose();
}

function measure(task: Task & Dose): Times {
  const { threads, runs, warm } = task;
  setCpuThreads(threads);
  if (task.kind === "decode") return decode(task.context, warm, runs);
  const run = task.kind === "rows" ? () => forwardRows(task.rows, task.context) : () => prefill(task.tokens);
  for (let i = 0; i < warm; i++) run();
  return timed(runs, () => {
    for (let i = 0; i < runs; i++) run();
  });
}

await answerBursts((line) => {
  const request = JSON.parse(line) as Request;
  return request.kind === "prepare" ? prepare(request) : { ...measure(request) };
});
