/**
 * One layer of a drafter: pre-norm attention and MLP in qwen's or gemma-4's order of norms. drafters.md §2. A qwen layer
 * can be made of the blocks in which a backend joins ops; convolutions and gemma-4's norms stand between those.
 */
import { free, type MlxArray } from "../mlx/array.ts";
import { add, multiply, rmsNorm } from "../mlx/ops.ts";
import type { FeedForward, Linear, ProjectionAdd } from "../nn/compute.ts";
import { activate } from "../nn/stock.ts";
import type { NormWeights } from "../nn/weights.ts";
import type { DraftAttention } from "./attention.ts";
import type { DynamicConv } from "./conv.ts";

/** Norms of outputs, and the factor of the whole layer: gemma-4 only. */
export interface GemmaParts {
  readonly beforeMlp: NormWeights;
  readonly afterMlp: NormWeights;
  /** [1] */
  readonly factor: MlxArray;
}

export interface LayerParts {
  readonly inputNorm: NormWeights;
  /** qwen: before the MLP; gemma-4: of the attention's output. */
  readonly postAttentionNorm: NormWeights;
  readonly attention: DraftAttention;
  readonly gate: Linear;
  readonly up: Linear;
  readonly down: Linear;
  readonly gemma: GemmaParts | null;
  readonly attentionConv: DynamicConv | null;
  readonly mlpConv: DynamicConv | null;
}

export interface DraftLayer {
  readonly attention: DraftAttention;
  /** h [R·width, H]; `attend` is `attention` over the rows' contexts. */
  apply(h: MlxArray, width: number, attend: (x: MlxArray) => MlxArray): MlxArray;
  dispose(): void;
}

/** Of whole ops: each has its place between any others. */
export class PlainLayer implements DraftLayer {
  constructor(private readonly parts: LayerParts) {}

  get attention(): DraftAttention {
    return this.parts.attention;
  }

  apply(h: MlxArray, width: number, attend: (x: MlxArray) => MlxArray): MlxArray {
    const { inputNorm, postAttentionNorm, gemma, attentionConv, mlpConv } = this.parts;
    const input = normed(h, inputNorm);
    const attended = attentionConv === null ? attend(input) : attentionConv.around(input, width, attend);
    if (gemma !== null) {
      const middle = add(h, normed(attended, postAttentionNorm));
      const out = this.mlp(normed(middle, gemma.beforeMlp));
      return multiply(add(middle, normed(out, gemma.afterMlp)), gemma.factor);
    }
    const middle = add(h, attended);
    const x = normed(middle, postAttentionNorm);
    const out = mlpConv === null ? this.mlp(x) : mlpConv.around(x, width, (y) => this.mlp(y));
    return add(middle, out);
  }

  private mlp(x: MlxArray): MlxArray {
    const { gate, up, down, gemma } = this.parts;
    const gated = activate(gate.apply(x), gemma === null ? "silu" : "gelu_tanh");
    return down.apply(multiply(gated, up.apply(x)));
  }

  dispose(): void {
    const { inputNorm, postAttentionNorm, attention, gate, up, down, gemma, attentionConv, mlpConv } = this.parts;
    for (const norm of [inputNorm, postAttentionNorm, gemma?.beforeMlp, gemma?.afterMlp]) {
      if (norm !== undefined) free(norm.weight);
    }
    if (gemma !== null) free(gemma.factor);
    for (const part of [attention, gate, up, down, attentionConv, mlpConv]) part?.dispose();
  }
}

export interface JoinedParts {
  /** With the norm of its input, without the projection of its output. */
  readonly attention: DraftAttention;
  readonly output: ProjectionAdd;
  readonly feedForward: FeedForward;
}

/** A qwen layer of joined ops. */
export class JoinedLayer implements DraftLayer {
  constructor(private readonly parts: JoinedParts) {}

  get attention(): DraftAttention {
    return this.parts.attention;
  }

  apply(h: MlxArray, _: number, attend: (x: MlxArray) => MlxArray): MlxArray {
    return this.parts.feedForward.apply(this.parts.output.apply(attend(h), h));
  }

  dispose(): void {
    const { attention, output, feedForward } = this.parts;
    for (const part of [attention, output, feedForward]) part.dispose();
  }
}

function normed(x: MlxArray, norm: NormWeights): MlxArray {
  return rmsNorm(x, norm.weight, norm.eps);
}
