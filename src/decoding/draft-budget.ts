/**
 * How many drafts each row of a batch gets, so that the step commits the most tokens per millisecond (batching.md §B8).
 * The cost of a step depends on its rows in total, so that for a given total the drafts most likely to stand are the
 * best ones; all totals are tried. Exact but for the depth term, which is priced at the best rate found (Dinkelbach).
 */
import type { CostCurves } from "./cost-curves.ts";

export interface BudgetRow {
  /** Probability that draft i and all before it are accepted, i = 1 …: never rising; its length limits the drafts. */
  readonly survival: readonly number[];
  /** Tokens of context. */
  readonly depth: number;
  /** Drafts that it gets in any case, e.g. 1 for a probe. */
  readonly minimum?: number;
}

/** Rows of the same forward that are not ours to choose: lookup drafts, prefill. */
export interface FixedRows {
  readonly rows: number;
  /** Tokens that they are expected to commit. */
  readonly tokens: number;
}

/** A step has at most so many rows if nothing else is said: the measured axis ends there (calibration.md §2). */
const ROWS_MAX = 64;
const DEPTH_PASSES = 3;

interface Choice {
  readonly drafts: readonly number[];
  readonly rate: number;
}

/** Drafts per row, in the order given. */
export function allocateDrafts(
  rows: readonly BudgetRow[],
  curves: CostCurves,
  fixed: FixedRows = { rows: 0, tokens: 0 },
  rowsMax = ROWS_MAX,
): number[] {
  if (rows.length === 0) return [];
  const longest = rows.reduce((most, { survival }) => Math.max(most, survival.length), 0);
  const anyDepth = rows.some(({ depth }) => curves.depthMs(1, depth) !== 0 || curves.depthMs(longest + 1, depth) !== 0);
  let best = sweep(rows, curves, fixed, rowsMax, longest, 0);
  for (let pass = 1; anyDepth && pass < DEPTH_PASSES; pass++) {
    const next = sweep(rows, curves, fixed, rowsMax, longest, best.rate);
    if (next.rate <= best.rate) break;
    best = next;
  }
  return [...best.drafts];
}

/**
 * The best of all totals and all limits on the longest draft, which sets what drafting costs.
 * @param price tokens per ms at which depth is charged to a draft when drafts are ranked
 */
function sweep(
  rows: readonly BudgetRow[],
  curves: CostCurves,
  fixed: FixedRows,
  rowsMax: number,
  longest: number,
  price: number,
): Choice {
  const least = rows.map(({ survival, minimum = 0 }) => Math.min(minimum, survival.length));
  let best: Choice | null = null;
  for (let limit = Math.max(0, ...least); limit <= longest; limit++) {
    const drafts = [...least];
    for (;;) {
      const rate = rateOf(rows, curves, fixed, drafts);
      if (best === null || rate > best.rate) best = { drafts: [...drafts], rate };
      const total = fixed.rows + rows.length + drafts.reduce((sum, d) => sum + d, 0);
      const next = total < rowsMax ? likeliest(rows, curves, drafts, limit, price) : -1;
      if (next === -1) break;
      drafts[next] = (drafts[next] as number) + 1;
    }
  }
  return best ?? { drafts: least, rate: 0 };
}

/** The row whose next draft brings most; -1 when none may have one more. */
function likeliest(
  rows: readonly BudgetRow[],
  curves: CostCurves,
  drafts: readonly number[],
  limit: number,
  price: number,
) {
  let best = -1;
  let most = Number.NEGATIVE_INFINITY;
  for (const [b, { survival, depth }] of rows.entries()) {
    const d = drafts[b] as number;
    if (d >= Math.min(limit, survival.length)) continue;
    const deeper = curves.depthMs(d + 2, depth) - curves.depthMs(d + 1, depth);
    const gain = (survival[d] as number) - price * deeper;
    if (gain > most) {
      most = gain;
      best = b;
    }
  }
  return best;
}

/** Expected tokens per ms of the step. */
function rateOf(rows: readonly BudgetRow[], curves: CostCurves, fixed: FixedRows, drafts: readonly number[]): number {
  let tokens = fixed.tokens;
  let total = fixed.rows;
  let depthMs = 0;
  for (const [b, { survival, depth }] of rows.entries()) {
    const d = drafts[b] as number;
    tokens += 1;
    for (let i = 0; i < d; i++) tokens += survival[i] as number;
    total += 1 + d;
    depthMs += curves.depthMs(1 + d, depth);
  }
  return tokens / (curves.batchMs(total, Math.max(0, ...drafts)) + depthMs);
}
