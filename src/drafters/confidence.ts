/** The confidence head: the logit of "slot i is right if those before it are", from the slot and the token before. */
import { concatenate, dim, type MlxArray } from "../mlx/array.ts";
import { reshape } from "../mlx/ops.ts";
import type { Linear } from "../nn/compute.ts";

export class ConfidenceHead {
  /** @param projection [1, H], or [1, H + r] when it reads the Markov features, too */
  constructor(
    private readonly projection: Linear,
    readonly readsMarkov: boolean,
  ) {}

  /** hidden [m, H], features [m, r] of the tokens before → logits [m]. */
  logits(hidden: MlxArray, features: MlxArray | null): MlxArray {
    const x = this.readsMarkov && features !== null ? concatenate([hidden, features], 1) : hidden;
    return reshape(this.projection.apply(x), [dim(hidden, 0)]);
  }

  dispose(): void {
    this.projection.dispose();
  }
}
