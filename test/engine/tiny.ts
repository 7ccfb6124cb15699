/** A scheduler over a tiny golden model, with a wrapper that watches and breaks forwards, and a serial reference. */
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import type { GrammarCompiler } from "../../src/decoding/constraint.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { ReadyModel } from "../../src/engine/load-model.ts";
import { type FromEngine, type GenerateRequest, type LoadSpec, NO_SPECULATION } from "../../src/engine/protocol.ts";
import { Scheduler } from "../../src/engine/scheduler.ts";
import { firstInt, int32Array, type MlxArray, scope, toFloat32 } from "../../src/mlx/array.ts";
import { add, astype, quantize, quantizedMatmul, slice, zeros } from "../../src/mlx/ops.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { ForwardResult, TargetModel } from "../../src/models/target.ts";
import { type StateLayout, StepBatch } from "../../src/nn/layer-state.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { goldenRoot } from "../support/golden.ts";
import { GREEDY } from "../support/sampling.ts";

/**
 * Where a broken forward fails: while its graph is built, when it is handed to the device, or on the device. MLX counts a
 * task that failed on the device as running for ever, and with two of those in a process its limit on running tasks can
 * wait for one that never ends: in all tests of the process together, one is broken there.
 */
export type Breakage = "graph" | "dispatch" | "device";

/** Watches the forwards of `inner` and breaks those that `breaks` chooses. */
export class Watch {
  readonly model: TargetModel;
  readonly batches: { rows: number; total: number }[] = [];
  breaks: (batch: StepBatch) => Breakage | null = () => null;
  private breakage: Breakage | null = null;

  constructor(inner: TargetModel) {
    this.model = Object.assign(Object.create(inner) as TargetModel, {
      forward: (ids: MlxArray, batch: StepBatch, taps?: readonly number[]): ForwardResult => {
        this.batches.push({ rows: batch.rows.length, total: batch.total });
        this.breakage = this.breaks(batch);
        // Whatever was appended before the error has to go with the row.
        const result = inner.forward(ids, batch, taps);
        if (this.breakage === "graph") throw new Error("broken graph");
        return result;
      },
      logits: (hidden: MlxArray): MlxArray => {
        const logits = inner.logits(hidden);
        return this.breakage === null ? logits : add(logits, poison(this.breakage));
      },
    });
  }
}

/** A [1, 1] that cannot be computed: MLX takes the op and fails when it runs. */
function poison(breakage: Breakage): MlxArray {
  if (breakage === "dispatch") {
    const { scales } = quantize(zeros([1, 32], "float64"), 32, 4, "affine");
    return astype(scales, "float32");
  }
  const { weight, scales, biases } = quantize(zeros([1, 32], "float32"), 32, 4, "affine");
  const wrong = quantizedMatmul(zeros([1, 32], "float64"), weight, scales, biases, true, 32, 4, "affine");
  return astype(slice(wrong, [0, 0], [1, 1]), "float32");
}

/** A golden model on one of the CPU backends. */
export interface Tiny {
  readonly model: TargetModel;
  readonly layout: StateLayout;
  dispose(): void;
}

export function tinyModel(name = "llama-f32", backend: "fused" | "stock" = "fused"): Tiny {
  const { compute, dtype } = chooseCompute({ MLX_DSPARK_CPU: backend });
  const { model } = loadTarget(join(goldenRoot("dense"), name), compute, { dtype });
  return { model, layout: compute.stateLayout, dispose: () => model.dispose() };
}

export interface Harness {
  readonly scheduler: Scheduler;
  readonly watch: Watch;
  /** Everything posted so far. */
  readonly posted: FromEngine[];
  /** Turns until nothing is left to do. */
  run(): void;
}

export function harness(
  { model: inner, layout }: Tiny,
  options: Partial<LoadSpec> & {
    window?: number;
    speculator?: Speculator;
    vocab?: number;
    grammars?: GrammarCompiler | null;
    wake?: () => void;
  } = {},
): Harness {
  const { window = 2048, speculator = null, vocab = inner.vocabSize, grammars = null, wake, ...wishes } = options;
  const watch = new Watch(inner);
  const posted: FromEngine[] = [];
  const spec: LoadSpec = {
    model: "tiny",
    offline: true,
    kvBits: 0,
    contextWindow: null,
    threads: null,
    speculation: NO_SPECULATION,
    maxBatch: 4,
    maxQueue: 64,
    ...wishes,
  };
  const info = {
    id: "tiny",
    requested: "tiny",
    dir: "",
    family: inner.family,
    mode: modeOf(speculator),
    drafter: null,
    drafting: null,
    vocabSize: vocab,
    contextWindow: window,
    eosIds: [],
    samplingDefaults: {},
    weightBytes: 0,
    footprint: {
      ...{ totalBytes: 0, activeBytes: 0, expertBytes: 0, embedBytes: 0 },
      ...{ experts: 0, expertsPerToken: null, activeIsEstimate: false },
    },
    bandwidth: null,
    mlx: "0",
    kvBytesPerToken: 0,
    backend: "cpu",
    quantization: null,
    notes: [],
  } as const;
  const target: ReadyModel["target"] = {
    model: watch.model,
    stateLayout: layout,
    eosIds: [],
    samplingDefaults: {},
    quantization: null,
    weightBytes: 0,
    notes: [],
  };
  const scheduler = new Scheduler(
    { target, info, speculator, vocab, grammars },
    spec,
    (message) => posted.push(message),
    wake,
  );
  const run = () => {
    for (let turns = 0; scheduler.busy; turns++) {
      if (turns > 20_000) throw new Error("the scheduler does not come to an end");
      scheduler.turn();
    }
  };
  return { scheduler, watch, posted, run };
}

function modeOf(speculator: Speculator | null): ReadyModel["info"]["mode"] {
  if (speculator === null) return "baseline";
  if (speculator.drafter === null) return "lookup";
  return speculator.drafter.kind === "dspark" ? "dspark" : "dflash";
}

let requests = 0;
export function request(part: Partial<GenerateRequest> = {}): GenerateRequest {
  requests++;
  return {
    id: requests.toString(16).padStart(8, "0"),
    promptIds: [1, 2, 3],
    maxNewTokens: 8,
    sampling: GREEDY,
    eosIds: [],
    topLogprobs: null,
    priority: 0,
    ...part,
  };
}

export interface Outcome {
  readonly ids: number[];
  /** Finish reason, or `failed: kind`. */
  readonly end: string | null;
}

/** What one request was told. Throws when anything follows its end. */
export function outcome(posted: readonly FromEngine[], id: string): Outcome {
  const ids: number[] = [];
  let end: string | null = null;
  for (const message of posted) {
    const events = message.type === "tokens" ? message.batch.filter((event) => event.id === id) : [];
    const own = events.length > 0 || ("id" in message && message.id === id);
    if (own && end !== null) throw new Error(`${message.type} after ${end} of ${id}`);
    for (const event of events) ids.push(...event.ids);
    if (message.type === "done" && message.id === id) end = message.reason;
    if (message.type === "failed" && message.id === id) end = `failed: ${message.error.kind}`;
  }
  return { ids, end };
}

/** One row alone, a step at a time, argmax on the host: what any schedule must give. */
export function serial({ model, layout }: Tiny, asked: GenerateRequest, window = 2048): Outcome {
  const states = model.newStates(kvStates(0, layout), 4096);
  const sampler = new Sampler(asked.sampling, model.vocabSize, asked.promptIds);
  const limit = Math.min(asked.maxNewTokens, window - asked.promptIds.length);
  const ids: number[] = [];
  let input = Array.from(asked.promptIds);
  let offset = 0;
  let end = "length";
  while (ids.length < limit) {
    const id = scope(() => {
      const batch = new StepBatch([{ states, count: input.length, offset }]);
      const { hidden } = model.forward(int32Array(input), batch);
      const logits = model.logits(slice(hidden, [input.length - 1, 0], [input.length, model.hiddenSize]));
      if (!sampler.plainGreedy) return firstInt(sampler.choose(logits, ids.length));
      const values = toFloat32(logits);
      return values.indexOf(values.reduce((best, value) => Math.max(best, value)));
    });
    offset += input.length;
    input = [id];
    ids.push(id);
    if (asked.eosIds.includes(id)) {
      end = "stop";
      break;
    }
  }
  for (const state of states) state.dispose();
  sampler.dispose();
  return { ids, end };
}
