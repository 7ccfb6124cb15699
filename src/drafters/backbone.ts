/**
 * The transformer that all drafters share: fuses tapped target rows into one context row per position, keeps that
 * context as keys and values per layer, and runs the slots of a block over it. drafters.md §1 and §2.
 */
import { dim, type MlxArray } from "../mlx/array.ts";
import { slice } from "../mlx/ops.ts";
import type { Linear, Norm } from "../nn/compute.ts";
import { StepBatch } from "../nn/layer-state.ts";
import type { Rope } from "../nn/rope.ts";
import type { Context } from "./context.ts";
import type { DraftLayer } from "./layer.ts";
import type { BackboneSettings } from "./settings.ts";

export interface BackboneParts {
  /** [H, taps·H of the target] */
  readonly fuse: Linear;
  readonly contextNorm: Norm;
  readonly layers: readonly DraftLayer[];
  readonly finalNorm: Norm;
  readonly rope: Rope;
}

/** One row of a block's batch. */
export interface BlockRow {
  /** Of all layers, in order. */
  readonly contexts: readonly Context[];
  /** Position of the anchor: the context's end. */
  readonly position: number;
}

export class Backbone {
  constructor(
    readonly settings: BackboneSettings,
    private readonly parts: BackboneParts,
    /** Context rows that layers without a window of their own attend to; null: all. */
    private readonly contextLimit: number | null,
    /** Per layer, the most context rows that are kept; null: all. */
    readonly visible: readonly (number | null)[],
  ) {}

  /** Empty contexts of a row, of all layers; see `DraftAttention.newContext`. */
  newContexts(capacityMax: number, first: number): Context[] {
    return this.parts.layers.map(({ attention }, i) =>
      attention.newContext(this.visible[i] ?? null, capacityMax, first),
    );
  }

  /** taps [n, taps·H] → context rows c [n, H]. */
  fuse(taps: MlxArray): MlxArray {
    return this.parts.contextNorm.apply(this.parts.fuse.apply(taps));
  }

  /** Appends the fused rows of positions `position` … to a row's contexts. */
  append(taps: MlxArray, contexts: readonly Context[], position: number): void {
    const given = dim(taps, 0);
    // When no layer keeps more, older rows need not even be fused.
    const most = this.visible.reduce<number>((sum, rows) => Math.max(sum, rows ?? given), 0);
    const count = Math.min(given, most);
    const used = count === given ? taps : slice(taps, [given - count, 0], [given, dim(taps, 1)]);
    const c = this.fuse(used);
    const first = position + given - count;
    const batch = new StepBatch([{ states: [], count, offset: first }]);
    for (const [i, layer] of this.parts.layers.entries()) {
      const context = contexts[i];
      if (context === undefined) throw new RangeError(`no context for layer ${i}`);
      layer.attention.append(c, batch, context, first, this.visible[i] ?? null);
    }
  }

  /** Embedded slots h [R·width, H], row after row → hidden states behind the final norm [R·width, H]. */
  run(h: MlxArray, rows: readonly BlockRow[], width: number): MlxArray {
    const batch = new StepBatch(rows.map(({ position }) => ({ states: [], count: width, offset: position })));
    let x = h;
    for (const [i, layer] of this.parts.layers.entries()) {
      const attended = rows.map(({ contexts, position }) => {
        const context = contexts[i];
        if (context === undefined) throw new RangeError(`no context for layer ${i}`);
        return { context, position };
      });
      x = layer.apply(x, width, (input) => layer.attention.apply(input, batch, attended, width, this.contextLimit));
    }
    return this.parts.finalNorm.apply(x);
  }

  dispose(): void {
    const { fuse, contextNorm, layers, finalNorm, rope } = this.parts;
    for (const part of [fuse, contextNorm, finalNorm, rope, ...layers]) part.dispose();
  }
}
