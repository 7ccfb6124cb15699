/**
 * Who frees what when a load fails halfway: arrays belong to the reader until a block takes them, then to the block. The
 * ledger stands before the compute backend and remembers the blocks that a model makes.
 */
import { type MlxArray, NONE } from "../mlx/array.ts";
import type { Block, Compute, ContextAttentionSpec, FeedForwardSpec, SelfAttentionSpec } from "./compute.ts";
import type { LinearWeights, Matrix, NormWeights } from "./weights.ts";

export class BlockLedger {
  private readonly blocks: Block[] = [];

  /** The backend as the model sees it. */
  readonly compute: Compute;

  /** @param handOver told which arrays a block has taken */
  constructor(
    inner: Compute,
    private readonly handOver: (taken: readonly MlxArray[]) => void,
  ) {
    const { contextAttention } = inner;
    this.compute = {
      name: inner.name,
      stateLayout: inner.stateLayout,
      embedding: (table) => this.enter(inner.embedding(table), ofMatrix(table)),
      linear: (linear) => this.enter(inner.linear(linear), ofLinear(linear)),
      norm: (norm) => this.enter(inner.norm(norm), ofNorm(norm)),
      projectionAdd: (linear) => this.enter(inner.projectionAdd(linear), ofLinear(linear)),
      feedForward: (spec) => this.enter(inner.feedForward(spec), ofFeedForward(spec)),
      selfAttention: (spec) => this.enter(inner.selfAttention(spec), ofAttention(spec)),
      head: (norm, head, embedding) =>
        this.enter(inner.head(norm, head, embedding), [...ofNorm(norm), ...(head === null ? [] : ofLinear(head))]),
      contextAttention:
        contextAttention === null ? null : (spec) => this.enter(contextAttention(spec), ofContextAttention(spec)),
      greedyWalk: (before, after) => inner.greedyWalk(before, after),
    };
  }

  private enter<T extends Block>(block: T, taken: readonly MlxArray[]): T {
    this.blocks.push(block);
    this.handOver(taken.filter((x) => x !== NONE));
    return block;
  }

  /** Frees every block, after a failed load. */
  discard(): void {
    for (const block of this.blocks.splice(0).reverse()) block.dispose();
  }
}

function ofMatrix(matrix: Matrix): MlxArray[] {
  return matrix.kind === "plain" ? [matrix.weight] : [matrix.weight, matrix.scales, matrix.biases];
}

function ofLinear({ matrix, bias }: LinearWeights): MlxArray[] {
  return [...ofMatrix(matrix), bias];
}

function ofNorm(norm: NormWeights | null): MlxArray[] {
  return norm === null ? [] : [norm.weight];
}

function ofFeedForward({ norm, gate, up, down }: FeedForwardSpec): MlxArray[] {
  return [...ofNorm(norm), ...ofLinear(gate), ...ofLinear(up), ...ofLinear(down)];
}

function ofAttention({ norm, q, k, v, o, qNorm, kNorm }: SelfAttentionSpec): MlxArray[] {
  return [...[norm, qNorm, kNorm].flatMap(ofNorm), ...[q, k, v, o].flatMap(ofLinear)];
}

function ofContextAttention({ norm, q, keyValue, qNorm, kNorm, sinks }: ContextAttentionSpec): MlxArray[] {
  return [...ofNorm(norm), ...ofLinear(q), ...ofLinear(keyValue), ...ofNorm(qNorm), ...ofNorm(kNorm), sinks];
}
