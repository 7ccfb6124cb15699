/**
 * The work that calibration times: verify forwards, drafts and whole rounds of a real pair at a fixed depth, with distinct
 * pseudo-random ids (a mixture of experts routes equal rows to equal experts, and would look too cheap).
 */
import { fillState } from "../cache/fill-state.ts";
import { kvStates } from "../cache/state-factory.ts";
import type { Drafter, DrafterSession } from "../drafters/drafter.ts";
import { evaluate, free, int32Array, keep, scope, toFloat32 } from "../mlx/array.ts";
import type { TargetModel } from "../models/target.ts";
import { type LayerState, type StateLayout, type StateSpec, StepBatch } from "../nn/layer-state.ts";
import type { CalibrationWork } from "./calibrate.ts";
import { CALIBRATION_DEPTH } from "./calibrate.ts";
import type { PlannedDraft } from "./draft-blocks.ts";
import { runRound } from "./round.ts";
import { Row } from "./row.ts";
import { RowDrafting } from "./row-drafting.ts";
import { Sampler } from "./sampler.ts";
import type { SamplingParams } from "./sampling-params.ts";
import { type InFlightStep, scheduleStep } from "./step.ts";

const SEED = 1234;
/** Room behind the depth for the widest verify. */
const ROOM = 256;
const GREEDY: SamplingParams = {
  temperature: 0,
  topP: 1,
  topK: 0,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  logitBias: [],
  seed: "0",
};

export interface CalibratedPair {
  readonly model: TargetModel;
  readonly layout: StateLayout;
  readonly kvBits: 0 | 4 | 8;
  readonly vocab: number;
  readonly drafter: Drafter | null;
}

export class PairWork implements CalibrationWork {
  private readonly states: LayerState[];
  private readonly session: DrafterSession | null;
  private readonly prompt: Int32Array;
  private deep: { readonly depth: number; readonly states: readonly LayerState[] } | null = null;
  private random = SEED;

  /** Reads a prompt of the calibration depth. To be disposed. */
  constructor(private readonly pair: CalibratedPair) {
    const { model, layout, kvBits, drafter } = pair;
    const capacity = CALIBRATION_DEPTH + ROOM;
    this.states = model.newStates(kvStates(kvBits, layout), capacity);
    this.session = drafter?.newSession(capacity) ?? null;
    this.prompt = this.ids(CALIBRATION_DEPTH);
    try {
      const chunk = 128;
      for (let at = 0; at < CALIBRATION_DEPTH; at += chunk) this.read(this.prompt.slice(at, at + chunk), at);
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  measureVerify(width: number): void {
    const { model, drafter } = this.pair;
    const logits = scope(() => {
      const batch = new StepBatch([{ states: this.states, count: width, offset: CALIBRATION_DEPTH }]);
      const { hidden } = model.forward(int32Array(this.ids(width)), batch, drafter?.taps ?? []);
      return keep(model.logits(hidden));
    });
    try {
      evaluate([logits]);
    } finally {
      free(logits);
      this.reset();
    }
  }

  measureDraft(cap: number): void {
    const { session } = this;
    if (session === null) return;
    const ids = scope(() => {
      const law = { kind: "greedy", vocab: this.pair.vocab, bias: null } as const;
      return keep(session.propose(int32Array(this.ids(1)), cap, law).ids);
    });
    try {
      evaluate([ids]);
    } finally {
      free(ids);
    }
  }

  measureRound(cap: number): void {
    const { model, drafter, vocab } = this.pair;
    const draft: PlannedDraft =
      this.session === null ? { source: "plain" } : { source: "drafter", cap, confidenceThreshold: 0 };
    this.withRow((row) => runRound(model, [{ row, draft }], { drafter, vocab }));
  }

  measurePlain(steps: number): void {
    const { model, drafter, vocab } = this.pair;
    this.withRow((row) => {
      let inFlight: InFlightStep | null = null;
      for (let i = 0; i < steps; i++) {
        const next = scheduleStep(model, [{ row, kind: "decode", count: 1 }], vocab, drafter?.taps ?? []);
        inFlight?.settle();
        inFlight = next;
      }
      inFlight?.settle();
    });
  }

  /** Over keys and values that mean nothing: only their number costs. */
  measureDepth(width: number, depth: number): void {
    const { model, drafter } = this.pair;
    const states = this.deepStates(depth);
    scope(() => {
      const batch = new StepBatch([{ states, count: width, offset: depth }]);
      const { hidden } = model.forward(int32Array(this.ids(width)), batch, drafter?.taps ?? []);
      evaluate([model.logits(hidden)]);
    });
    for (const state of states) state.trim(width);
  }

  dispose(): void {
    for (const state of this.states) state.dispose();
    this.session?.close();
    this.forgetDeep();
  }

  /** States of `depth` tokens, kept till another depth is asked for. */
  private deepStates(depth: number): readonly LayerState[] {
    if (this.deep?.depth === depth) return this.deep.states;
    this.forgetDeep();
    const { model, layout, kvBits } = this.pair;
    const factory = kvStates(kvBits, layout);
    const specs: StateSpec[] = [];
    const states = model.newStates(
      {
        newState(spec, capacityMax) {
          specs.push(spec);
          return factory.newState(spec, capacityMax);
        },
      },
      depth + ROOM,
    );
    this.deep = { depth, states };
    for (const [layer, state] of states.entries()) fillState(state, specs[layer] as StateSpec, depth);
    return states;
  }

  private forgetDeep(): void {
    for (const state of this.deep?.states ?? []) state.dispose();
    this.deep = null;
  }

  /** A row of the calibration depth, with a token that is not computed yet. */
  private withRow(run: (row: Row) => void): void {
    const sampler = new Sampler(GREEDY, this.pair.vocab, []);
    const limits = { maxNew: ROOM, eos: new Set<number>(), topLogprobs: null };
    const row = new Row(this.prompt, this.states, sampler, limits, new RowDrafting(null, this.session));
    row.tokens.push(this.ids(1)[0] ?? 0);
    row.cached = CALIBRATION_DEPTH;
    row.chosen = 1;
    try {
      run(row);
    } finally {
      sampler.dispose();
      this.reset();
    }
  }

  private read(ids: Int32Array, offset: number): void {
    const { model, drafter } = this.pair;
    scope(() => {
      const batch = new StepBatch([{ states: this.states, count: ids.length, offset }]);
      const { taps } = model.forward(int32Array(ids), batch, drafter?.taps ?? []);
      if (taps !== null) this.session?.committed(taps);
    });
    evaluate([...this.states.flatMap((state) => state.arrays()), ...(this.session?.arrays() ?? [])]);
  }

  /** Back to the calibration depth. */
  private reset(): void {
    for (const state of this.states) if (state.length > CALIBRATION_DEPTH) state.trim(state.length - CALIBRATION_DEPTH);
    if (this.session !== null && this.session.length > CALIBRATION_DEPTH) this.session.trim(CALIBRATION_DEPTH);
  }

  /** Uniform ids, new ones at every call (Park and Miller's generator). */
  private ids(count: number): Int32Array {
    return Int32Array.from({ length: count }, () => {
      this.random = (this.random * 48271) % 2147483647;
      return this.random % this.pair.vocab;
    });
  }
}

/** Largest difference between the logits of a tapped and an untapped forward of the same ids: 0 where taps are faithful. */
export function tapDifference(pair: CalibratedPair, taps: readonly number[]): number {
  const run = (layers: readonly number[]): Float32Array => {
    const states = pair.model.newStates(kvStates(pair.kvBits, pair.layout), 8);
    try {
      return scope(() => {
        const batch = new StepBatch([{ states, count: 4, offset: 0 }]);
        const { hidden } = pair.model.forward(int32Array([1, 2, 3, 4]), batch, layers);
        return toFloat32(pair.model.logits(hidden));
      });
    } finally {
      for (const state of states) state.dispose();
    }
  };
  const plain = run([]);
  return run(taps).reduce((worst, value, i) => Math.max(worst, Math.abs(value - (plain[i] ?? Number.NaN))), 0);
}
