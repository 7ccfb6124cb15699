/**
 * DFlash 2's short convolution over the slots of a block, before and behind a sublayer. Its kernel is a fixed one per
 * channel plus one per group of channels that the sublayer's own input gives, slot by slot. Local to the block: slot 0
 * has no predecessor, and context rows never pass through it. drafters.md §4.
 */
import { concatenate, dim, dtypeOf, free, type MlxArray } from "../mlx/array.ts";
import { add, multiply, reshape, slice, zeros } from "../mlx/ops.ts";
import type { Linear } from "../nn/compute.ts";
import type { ConvSettings } from "./settings.ts";

const BEFORE = 0;
const BEHIND = 1;

export class DynamicConv {
  constructor(
    private readonly settings: ConvSettings,
    /** [2, taps, H]: side, distance to the slot, channel. */
    private readonly base: MlxArray,
    /** H → 2·taps·groups. */
    private readonly kernel: Linear,
  ) {}

  /** x [R·width, H] → conv(f(conv(x))), both kernels from x. */
  around(x: MlxArray, width: number, sublayer: (x: MlxArray) => MlxArray): MlxArray {
    const dynamic = this.kernel.apply(x);
    return this.apply(BEHIND, dynamic, sublayer(this.apply(BEFORE, dynamic, x, width)), width);
  }

  private apply(side: number, dynamic: MlxArray, y: MlxArray, width: number): MlxArray {
    const { taps, group } = this.settings;
    const [total, hidden] = [dim(y, 0), dim(y, 1)];
    const rows = total / width;
    const groups = hidden / group;
    const blocks = reshape(y, [rows, width, groups, group]);
    let sum: MlxArray | null = null;
    // Distances beyond the block meet nothing but zeros.
    for (let tap = 0; tap < Math.min(taps, width); tap++) {
      const fixed = reshape(slice(this.base, [side, tap, 0], [side + 1, tap + 1, hidden]), [1, 1, groups, group]);
      const at = (side * taps + tap) * groups;
      const own = reshape(slice(dynamic, [0, at], [total, at + groups]), [rows, width, groups, 1]);
      const term = multiply(add(fixed, own), delayed(blocks, tap));
      sum = sum === null ? term : add(sum, term);
    }
    if (sum === null) throw new RangeError("a convolution without taps");
    return reshape(sum, [total, hidden]);
  }

  dispose(): void {
    free(this.base);
    this.kernel.dispose();
  }
}

/** Blocks [R, width, G, g] moved `by` slots later, zeros before. */
function delayed(blocks: MlxArray, by: number): MlxArray {
  if (by === 0) return blocks;
  const [rows, width, groups, group] = [dim(blocks, 0), dim(blocks, 1), dim(blocks, 2), dim(blocks, 3)];
  const nothing = zeros([rows, by, groups, group], dtypeOf(blocks));
  return concatenate([nothing, slice(blocks, [0, 0, 0, 0], [rows, width - by, groups, group])], 1);
}
