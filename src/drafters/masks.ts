/**
 * Which keys the queries of a block see (drafters.md §2 and §4). The keys are the last `shown` rows of the context and
 * behind them the block. Query i stands at position n + i, so that only differences matter and no position is needed.
 */
import { boolArray, type MlxArray } from "../mlx/array.ts";
import type { LayerMask } from "./settings.ts";

/**
 * Context rows that any query of a block can see, of `held`.
 * @param limit the window over the context that the user sets, for layers without one of their own; null: none
 */
export function shownRows(mask: LayerMask, held: number, limit: number | null): number {
  const most = mask.window === null ? limit : mask.window - 1;
  return most === null ? held : Math.min(held, most);
}

/** The mask of a block of `width` slots over `shown` context rows: a name for MLX's attention, or bool [width, keys]. */
export function blockMask(mask: LayerMask, width: number, shown: number): MlxArray | "causal" | "none" {
  const plain = mask.causal && width > 1 ? "causal" : "none";
  if (mask.window === null || shown + width <= mask.window) return plain;
  return boolArray(maskBytes(mask, width, shown), [width, shown + width]);
}

/** As bytes, 1 where the key is seen. */
export function maskBytes({ window, causal, windowsBlock }: LayerMask, width: number, shown: number): Uint8Array {
  const total = shown + width;
  const seen = new Uint8Array(width * total);
  for (let i = 0; i < width; i++) {
    const oldest = window === null ? 0 : Math.max(0, shown + i - window + 1);
    const row = i * total;
    if (oldest < shown) seen.fill(1, row + oldest, row + shown);
    const first = windowsBlock ? Math.max(shown, oldest) : shown;
    seen.fill(1, row + first, row + (causal ? shown + i + 1 : total));
  }
  return seen;
}
