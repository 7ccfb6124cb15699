/** Self-attention of the fused backend: one primitive, whose projections, rotation and attention share a step's threads. */
import { free, keep, type MlxArray, NONE } from "../../mlx/array.ts";
import {
  type AttendedRow,
  type AttentionPlan,
  type AttentionWeights,
  freeAttentionPlan,
  freePackedMatrix,
  newAttentionPlan,
  type PackedMatrix,
  selfAttention,
} from "../../mlx/cpu.ts";
import type { SelfAttention, SelfAttentionSpec } from "../compute.ts";
import { isPacked, type PackedState, type StepBatch, StepToken } from "../layer-state.ts";
import { RopeTables } from "./rope-tables.ts";
import { freeNorm, packLinears, widenNorm } from "./weights.ts";

export class FusedSelfAttention implements SelfAttention {
  private readonly plan: AttentionPlan;
  private readonly weights: AttentionWeights;
  private readonly ropes: RopeTables | null;

  constructor(spec: SelfAttentionSpec) {
    const { heads, kvHeads, headDim, scale, rope } = spec;
    const [qNorm, kNorm] = [spec.qNorm, spec.kNorm].map((norm) => (norm === null ? null : widenNorm(norm)));
    this.plan = newAttentionPlan({
      heads,
      kvHeads,
      headDim,
      scale,
      ropeDims: rope?.dims ?? 0,
      interleaved: rope?.traditional ?? false,
      qNorm: qNorm?.weight ?? NONE,
      qEps: qNorm?.eps ?? 0,
      kNorm: kNorm?.weight ?? NONE,
      kEps: kNorm?.eps ?? 0,
      softCap: 0,
      sinks: NONE,
    });
    const [q, k, v, o] = packLinears([spec.q, spec.k, spec.v, spec.o]) as [
      PackedMatrix,
      PackedMatrix,
      PackedMatrix,
      PackedMatrix,
    ];
    const { weight, eps } = widenNorm(spec.norm);
    this.weights = { norm: weight, eps, q, k, v, o };
    this.ropes = rope === null ? null : new RopeTables(rope);
    for (const norm of [qNorm, kNorm]) if (norm) freeNorm(norm);
  }

  apply(x: MlxArray, batch: StepBatch, layer: number): MlxArray {
    const states = batch.rows.map((_, row) => stateOf(batch, row, layer));
    const rows = batch.rows.map(({ offset, count }, index): AttendedRow => {
      const state = states[index] as PackedState;
      return { store: state.store, after: state.after, start: offset, count, window: state.window ?? 0 };
    });
    const { out, token } = selfAttention(this.plan, this.weights, x, this.ropes?.of(batch) ?? NONE, rows);
    const shared = new StepToken(keep(token));
    for (const [index, state] of states.entries()) state.appended(batch.rows[index]?.count ?? 0, shared);
    return out;
  }

  dispose(): void {
    const { norm, q, k, v, o } = this.weights;
    free(norm);
    freeAttentionPlan(this.plan);
    for (const matrix of [q, k, v, o]) freePackedMatrix(matrix);
  }
}

function stateOf(batch: StepBatch, row: number, layer: number): PackedState {
  const part = batch.rows[row];
  const state = part?.states[layer];
  if (part === undefined || state === undefined) {
    throw new RangeError(`row ${row} of the step has no state for layer ${layer}`);
  }
  if (!isPacked(state)) throw new TypeError("the row's states were made for another compute backend");
  if (state.length !== part.offset) {
    throw new RangeError(`row ${row} starts at ${part.offset}, layer ${layer} holds ${state.length} tokens`);
  }
  return state;
}
