/**
 * A state that holds tokens without a model having read them: keys and values are noise. For measuring what a long
 * context costs, which does not depend on what stands in it.
 */
import { evaluate, keep, type MlxArray, NONE, scope } from "../mlx/array.ts";
import { freeAttentionPlan, newAttentionPlan } from "../mlx/cpu.ts";
import { appendPacked } from "../mlx/cpu-draft.ts";
import { reshape, slice, transpose } from "../mlx/ops.ts";
import { randomKey, uniform } from "../mlx/random.ts";
import {
  canAttend,
  isPacked,
  type LayerState,
  type PackedState,
  type StateSpec,
  StepToken,
} from "../nn/layer-state.ts";

/** Tokens appended at a time. */
const PIECE = 512;
const SEED = 1234n;

/**
 * Brings an empty state to `length` tokens, evaluated.
 * @throws TypeError for one that neither attends nor is packed
 */
export function fillState(state: LayerState, spec: StateSpec, length: number): void {
  for (let at = 0; at < length; at += PIECE) fill(state, spec, Math.min(PIECE, length - at));
  evaluate(state.arrays());
}

function fill(state: LayerState, spec: StateSpec, count: number): void {
  scope(() => {
    const rows = uniform([count, 2 * spec.kvHeads * spec.headDim], randomKey(SEED));
    if (isPacked(state)) append(state, spec, rows, count);
    else if (canAttend(state)) {
      const part = (from: number) =>
        transpose(
          reshape(slice(rows, [0, from * spec.headDim], [count, (from + spec.kvHeads) * spec.headDim]), [
            1,
            count,
            spec.kvHeads,
            spec.headDim,
          ]),
          [0, 2, 1, 3],
        );
      // What the queries find is thrown away.
      state.attend(part(0), part(0), part(spec.kvHeads), 1);
    } else throw new TypeError("these states cannot be filled");
  });
}

function append(state: PackedState, { kvHeads, headDim }: StateSpec, rows: MlxArray, count: number): void {
  const none = { qNorm: NONE, qEps: 0, kNorm: NONE, kEps: 0, sinks: NONE };
  const shape = { heads: kvHeads, kvHeads, headDim, scale: 1, ropeDims: 0, interleaved: false, softCap: 0 };
  const plan = newAttentionPlan({ ...shape, ...none });
  try {
    const { store, after, length } = state;
    const token = appendPacked(plan, rows, NONE, [{ store, after, start: length, count, window: state.window ?? 0 }]);
    state.appended(count, new StepToken(keep(token)));
  } finally {
    freeAttentionPlan(plan);
  }
}
