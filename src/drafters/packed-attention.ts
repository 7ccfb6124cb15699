/** A drafter layer's attention by the backend's own primitive: which rows of its contexts each block sees. */
import { dim, type MlxArray } from "../mlx/array.ts";
import { slice } from "../mlx/ops.ts";
import type { ContextAttention, Linear } from "../nn/compute.ts";
import { StepBatch } from "../nn/layer-state.ts";
import type { AttendedContext, DraftAttention } from "./attention.ts";
import type { Context } from "./context.ts";
import { shownRows } from "./masks.ts";
import { PackedContext } from "./packed-context.ts";
import type { LayerMask } from "./settings.ts";

export class PackedAttention implements DraftAttention {
  constructor(
    private readonly shape: { readonly kvHeads: number; readonly headDim: number },
    private readonly mask: LayerMask,
    private readonly block: ContextAttention,
    /** null: the layer applies it. */
    private readonly output: Linear | null,
  ) {}

  newContext(visible: number | null, _: number, first: number): Context {
    const { kvHeads, headDim } = this.shape;
    return new PackedContext(kvHeads, headDim, visible, first);
  }

  append(c: MlxArray, batch: StepBatch, context: Context, position: number, visible: number | null): void {
    const count = batch.total;
    const used = visible === null ? count : Math.min(count, visible);
    if (used === 0) return;
    const whole = used === count;
    const first = position + count - used;
    const rows = whole ? c : slice(c, [count - used, 0], [count, dim(c, 1)]);
    const positions = whole ? batch : new StepBatch([{ states: [], count: used, offset: first }]);
    own(context).append(used, first, (row) => this.block.append(rows, positions, row));
  }

  apply(
    x: MlxArray,
    batch: StepBatch,
    rows: readonly AttendedContext[],
    width: number,
    limit: number | null,
  ): MlxArray {
    const { window, causal, windowsBlock } = this.mask;
    const shown = rows.map(({ context }) =>
      own(context).shown(shownRows(this.mask, context.held, limit), width, window),
    );
    const out = this.block.attend(x, batch, shown, { causal, windowed: windowsBlock });
    return this.output === null ? out : this.output.apply(out);
  }

  dispose(): void {
    this.block.dispose();
    this.output?.dispose();
  }
}

function own(context: Context): PackedContext {
  if (!(context instanceof PackedContext)) throw new TypeError("the context was made by another kind of attention");
  return context;
}
