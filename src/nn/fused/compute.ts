/**
 * The fused CPU backend: four primitives a layer, float32 activations whatever the checkpoint says, weights packed in the
 * file's precision. A row's result depends on that row alone, to the bit (shim/dspark_cpu.h); what the products of packed
 * weights cost in precision is stated in shim/cpu/kernels.h (activations as 16-bit integers for each group of weights).
 */
import type { MlxArray } from "../../mlx/array.ts";
import {
  cpuIsa,
  feedForward,
  freePackedMatrix,
  normMatmul,
  type PackedMatrix,
  packedMatmul,
  packedMatmulAdd,
  packedNorm,
  packedRows,
} from "../../mlx/cpu.ts";
import { greedyWalk } from "../../mlx/cpu-draft.ts";
import type {
  Activation,
  Compute,
  Embedding,
  FeedForward,
  FeedForwardSpec,
  GreedyWalk,
  Head,
  Linear,
  Norm,
  ProjectionAdd,
} from "../compute.ts";
import type { LinearWeights, Matrix, NormWeights } from "../weights.ts";
import { FusedContextAttention } from "./context-attention.ts";
import { FusedSelfAttention } from "./self-attention.ts";
import { freeNorm, packLinears, packTable, widenNorm } from "./weights.ts";

export function fusedCompute(): Compute {
  return {
    name: `fused ${cpuIsa()}`,
    stateLayout: "packed",
    embedding: (table) => new FusedEmbedding(table),
    linear: (weights) => new FusedLinear(weights),
    norm: (norm) => new FusedNorm(norm),
    projectionAdd: (weights) => new FusedProjectionAdd(weights),
    feedForward: (spec) => new FusedFeedForward(spec),
    selfAttention: (spec) => new FusedSelfAttention(spec),
    contextAttention: (spec) => new FusedContextAttention(spec),
    greedyWalk: walkOver,
    head: (norm, weights, embedding) => new FusedHead(norm, weights, embedding),
  };
}

function walkOver(before: Embedding, after: Linear): GreedyWalk | null {
  if (!(before instanceof FusedEmbedding && after instanceof FusedLinear)) return null;
  return (base, anchor, width) => greedyWalk(base, anchor, before.table, after.matrix, width);
}

class FusedEmbedding implements Embedding {
  readonly table: PackedMatrix;

  constructor(weights: Matrix) {
    this.table = packTable(weights);
  }

  lookup(ids: MlxArray): MlxArray {
    return packedRows(ids, this.table);
  }

  project(x: MlxArray, outputs?: number): MlxArray {
    return packedMatmul(x, this.table, outputs);
  }

  dispose(): void {
    freePackedMatrix(this.table);
  }
}

class FusedLinear implements Linear {
  readonly matrix: PackedMatrix;

  constructor(weights: LinearWeights) {
    [this.matrix] = packLinears([weights]) as [PackedMatrix];
  }

  apply(x: MlxArray): MlxArray {
    return packedMatmul(x, this.matrix);
  }

  dispose(): void {
    freePackedMatrix(this.matrix);
  }
}

class FusedNorm implements Norm {
  private readonly weights: NormWeights;

  constructor(norm: NormWeights) {
    this.weights = widenNorm(norm);
  }

  apply(x: MlxArray): MlxArray {
    return packedNorm(x, this.weights.weight, this.weights.eps);
  }

  dispose(): void {
    freeNorm(this.weights);
  }
}

class FusedProjectionAdd implements ProjectionAdd {
  private readonly matrix: PackedMatrix;

  constructor(weights: LinearWeights) {
    [this.matrix] = packLinears([weights]) as [PackedMatrix];
  }

  apply(x: MlxArray, residual: MlxArray): MlxArray {
    return packedMatmulAdd(x, this.matrix, residual);
  }

  dispose(): void {
    freePackedMatrix(this.matrix);
  }
}

class FusedFeedForward implements FeedForward {
  private readonly norm: NormWeights;
  private readonly activation: Activation;
  private readonly matrices: readonly [PackedMatrix, PackedMatrix, PackedMatrix];

  constructor({ norm, gate, up, down, activation }: FeedForwardSpec) {
    this.matrices = packLinears([gate, up, down]) as [PackedMatrix, PackedMatrix, PackedMatrix];
    this.norm = widenNorm(norm);
    this.activation = activation;
  }

  apply(x: MlxArray): MlxArray {
    const [gate, up, down] = this.matrices;
    return feedForward(x, this.norm.weight, this.norm.eps, gate, up, down, this.activation);
  }

  dispose(): void {
    freeNorm(this.norm);
    for (const matrix of this.matrices) freePackedMatrix(matrix);
  }
}

class FusedHead implements Head {
  private readonly finalNorm: NormWeights;
  /** The head's own matrix, or the table's, which belongs to the embedding. */
  private readonly matrix: PackedMatrix;
  private readonly owned: boolean;

  constructor(norm: NormWeights, weights: LinearWeights | null, embedding: Embedding) {
    this.owned = weights !== null;
    if (weights !== null) [this.matrix] = packLinears([weights]) as [PackedMatrix];
    else if (embedding instanceof FusedEmbedding) this.matrix = embedding.table;
    else throw new TypeError("the embedding was made by another compute backend");
    this.finalNorm = widenNorm(norm);
  }

  norm(x: MlxArray): MlxArray {
    return packedNorm(x, this.finalNorm.weight, this.finalNorm.eps);
  }

  project(x: MlxArray, outputs?: number): MlxArray {
    return packedMatmul(x, this.matrix, outputs);
  }

  apply(x: MlxArray): MlxArray {
    return normMatmul(x, this.finalNorm.weight, this.finalNorm.eps, this.matrix);
  }

  dispose(): void {
    freeNorm(this.finalNorm);
    if (this.owned) freePackedMatrix(this.matrix);
  }
}
