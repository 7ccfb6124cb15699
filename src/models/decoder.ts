/**
 * A stack of pre-norm transformer layers with one embedding and one head: the shape of the dense families. A family
 * file says how its layers are made; what differs between families stays there.
 */
import { asyncEvaluate, concatenate, type MlxArray } from "../mlx/array.ts";
import type { Block, Embedding, FeedForward, Head, SelfAttention } from "../nn/compute.ts";
import type { LayerState, StateFactory, StateSpec, StepBatch } from "../nn/layer-state.ts";
import type { Capabilities, ForwardResult, TargetModel } from "./target.ts";

/** Layer behind which an eager forward is started: the host then stays ahead of the device. */
const STARTED_AFTER = 1;

/** h += o(attention(qkv(norm(h)))); h += down(act(gate(norm(h)))·up(norm(h))) */
export interface PreNormLayer {
  readonly attention: SelfAttention;
  readonly feedForward: FeedForward;
  readonly state: StateSpec;
}

export interface DecoderParts {
  readonly family: string;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly maxPositions: number | null;
  readonly embedding: Embedding;
  readonly layers: readonly PreNormLayer[];
  readonly head: Head;
}

export class DecoderModel implements TargetModel {
  readonly family: string;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly embedScale = 1;
  readonly maxPositions: number | null;
  readonly capabilities: Capabilities;
  readonly kvValuesPerToken: number;

  constructor(private readonly parts: DecoderParts) {
    this.family = parts.family;
    this.vocabSize = parts.vocabSize;
    this.hiddenSize = parts.hiddenSize;
    this.layers = parts.layers.length;
    this.maxPositions = parts.maxPositions;
    const windows = parts.layers.map((layer) => layer.state.window).filter((window) => window !== null);
    this.capabilities = {
      tapLayers: parts.layers.length,
      trimmable: true,
      batchable: true,
      window: windows.length === 0 ? null : Math.min(...windows),
    };
    this.kvValuesPerToken = parts.layers
      .filter((layer) => layer.state.window === null)
      .reduce((sum, layer) => sum + 2 * layer.state.kvHeads * layer.state.headDim, 0);
  }

  newStates(factory: StateFactory, capacityMax: number): LayerState[] {
    return this.parts.layers.map((layer) => factory.newState(layer.state, capacityMax));
  }

  forward(ids: MlxArray, batch: StepBatch, taps: readonly number[] = []): ForwardResult {
    const tapped: MlxArray[] = [];
    let h = this.parts.embedding.lookup(ids);
    if (taps.includes(-1)) tapped.push(h);
    for (const [index, layer] of this.parts.layers.entries()) {
      h = layer.feedForward.apply(layer.attention.apply(h, batch, index));
      if (batch.eager && index === STARTED_AFTER) asyncEvaluate([h]);
      if (taps.includes(index)) tapped.push(h);
    }
    return { hidden: h, taps: tapped.length === 0 ? null : concatenate(tapped, 1) };
  }

  norm(hidden: MlxArray): MlxArray {
    return this.parts.head.norm(hidden);
  }

  logits(hidden: MlxArray): MlxArray {
    return this.parts.head.apply(hidden);
  }

  embed(ids: MlxArray): MlxArray {
    return this.parts.embedding.lookup(ids);
  }

  head(x: MlxArray, outputs?: number): MlxArray {
    return this.parts.head.project(x, outputs);
  }

  dispose(): void {
    const { embedding, head, layers } = this.parts;
    const blocks: Block[] = [embedding, head];
    for (const { attention, feedForward } of layers) blocks.push(attention, feedForward);
    for (const block of blocks) block.dispose();
  }
}
