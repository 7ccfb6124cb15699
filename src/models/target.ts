/** What a target model is to the engine: a forward over ragged rows, and the facts that decide how it may be used. */
import type { MlxArray } from "../mlx/array.ts";
import type { LayerState, StateFactory, StepBatch } from "../nn/layer-state.ts";
import type { TargetParts } from "../nn/target-parts.ts";

/** Read from the model object, so that no list of model names is needed anywhere. */
export interface Capabilities {
  /** Layers whose output can be tapped for a drafter. */
  readonly tapLayers: number;
  /** A rejected suffix can be trimmed by length alone. */
  readonly trimmable: boolean;
  /** Rows of different length can share a forward. */
  readonly batchable: boolean;
  /** Smallest sliding window, in tokens; null: every layer sees everything. */
  readonly window: number | null;
}

export interface ForwardResult {
  /** Residual stream after the last layer, before the final norm: [R, hidden]. */
  readonly hidden: MlxArray;
  /** Outputs of the tapped layers side by side, [R, taps·hidden]; null without taps. */
  readonly taps: MlxArray | null;
}

export interface TargetModel extends TargetParts {
  /** The config's model_type as routed, e.g. "llama". */
  readonly family: string;
  /** Positions that the model was made for; null: unknown. */
  readonly maxPositions: number | null;
  readonly capabilities: Capabilities;
  /** Key and value elements that one token adds over all growing layers. */
  readonly kvValuesPerToken: number;
  /** The states of a new row. `capacityMax`: most tokens that the row can hold. */
  newStates(factory: StateFactory, capacityMax: number): LayerState[];
  /**
   * One forward of all tokens of the batch; appends to each row's states. To be called inside a scope.
   * @param ids int32 or uint32 [R]
   * @param taps ascending layer indices; −1 is the embedding's output
   */
  forward(ids: MlxArray, batch: StepBatch, taps?: readonly number[]): ForwardResult;
  /** Final norm of hidden rows [n, hidden]. */
  norm(hidden: MlxArray): MlxArray;
  /** Logits [n, vocabulary] of hidden rows [n, hidden]. */
  logits(hidden: MlxArray): MlxArray;
  dispose(): void;
}
