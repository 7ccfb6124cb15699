/**
 * Markov heads: what the token before adds to a slot's logits. Three published kinds (DeepSpec's formulas): a plain
 * bigram of low rank, one whose features are gated by the slot's hidden state, and one with a recurrent state over the
 * draft. drafters.md §2.
 */
import { concatenate, dim, dtypeOf, type MlxArray, scalar } from "../mlx/array.ts";
import { add, multiply, sigmoid, slice, subtract, tanh, zeros } from "../mlx/ops.ts";
import type { Embedding, GreedyWalk, Linear } from "../nn/compute.ts";

export interface MarkovParts {
  /** W1 [V, r], by target ids. */
  readonly before: Embedding;
  /** W2 [draft vocabulary, r] */
  readonly after: Linear;
  /** Gated: [r, H + r]; rnn: [3r, 2r + H]. */
  readonly joint: Linear | null;
  readonly type: "vanilla" | "gated" | "rnn";
  readonly rank: number;
  /** The plain kind's whole walk as one op, equal to its steps; null: there is none. */
  readonly greedy: GreedyWalk | null;
}

export class MarkovHead {
  constructor(private readonly parts: MarkovParts) {}

  get greedy(): GreedyWalk | null {
    return this.parts.greedy;
  }

  /** Features of the token before, ids [1] → [1, r]. */
  features(ids: MlxArray): MlxArray {
    return this.parts.before.lookup(ids);
  }

  /** The steps of one draft, in order. */
  chain(): MarkovChain {
    return new MarkovChain(this.parts);
  }

  dispose(): void {
    this.parts.before.dispose();
    this.parts.after.dispose();
    this.parts.joint?.dispose();
  }
}

export class MarkovChain {
  private state: MlxArray | null = null;

  constructor(private readonly parts: MarkovParts) {}

  /** base [1, width], hidden [1, H], features [1, r] of the token before → logits [1, width]. */
  step(base: MlxArray, hidden: MlxArray, features: MlxArray): MlxArray {
    return add(base, this.parts.after.apply(this.mixed(hidden, features)));
  }

  private mixed(hidden: MlxArray, features: MlxArray): MlxArray {
    const { joint, type } = this.parts;
    if (joint === null) return features;
    if (type === "gated") return multiply(sigmoid(joint.apply(concatenate([hidden, features], 1))), features);
    return this.recurrent(joint, hidden, features);
  }

  /** s ← σ(g)·s + (1 − σ(g))·tanh(c); the output is tanh(o). */
  private recurrent(joint: Linear, hidden: MlxArray, features: MlxArray): MlxArray {
    const { rank } = this.parts;
    const dtype = dtypeOf(features);
    const before = this.state ?? zeros([dim(features, 0), rank], dtype);
    const z = joint.apply(concatenate([before, features, hidden], 1));
    const third = (i: number) => slice(z, [0, i * rank], [dim(z, 0), (i + 1) * rank]);
    const g = sigmoid(third(0));
    this.state = add(multiply(g, before), multiply(subtract(scalar(1, dtype), g), tanh(third(1))));
    return tanh(third(2));
  }
}
