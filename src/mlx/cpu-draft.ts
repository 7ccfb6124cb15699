/** The CPU primitives that drafters alone use (shim/dspark_cpu.h), beside those of cpu.ts. */
import { commit, failure, type MlxArray, slot } from "./array.ts";
import {
  type AttendedRow,
  type AttentionPlan,
  commitSecond,
  type KvStore,
  type PackedMatrix,
  rowsAsCells,
  secondSlot,
} from "./cpu.ts";
import { native, stream } from "./native.ts";

/** Rotates and appends alone: kv [tokens, 2·kvHeads·headDim], keys before values. Returns the token, as selfAttention. */
export function appendPacked(
  plan: AttentionPlan,
  kv: MlxArray,
  rope: MlxArray,
  rows: readonly AttendedRow[],
): MlxArray {
  const cells = rowsAsCells(rows);
  if (native.dspark_cpu_append(slot(), plan, kv, rope, cells, rows.length, stream) !== 0) {
    throw failure("cpu_append", kv, rope);
  }
  return commit();
}

/** Which slots of its own block a slot sees. */
export interface BlockVisibility {
  /** None behind itself. */
  readonly causal: boolean;
  /** None before its window. */
  readonly windowed: boolean;
}

/**
 * Attention of blocks of up to 256 tokens that are not appended: qkv [tokens, (heads + 2·kvHeads)·headDim] of all rows
 * behind each other → [tokens, heads·headDim]. Each slot sees its store's tokens [first, start) too.
 */
export function attendBlocks(
  plan: AttentionPlan,
  qkv: MlxArray,
  rope: MlxArray,
  rows: readonly AttendedRow[],
  { causal, windowed }: BlockVisibility,
): MlxArray {
  const [cells, count] = [rowsAsCells(rows), rows.length];
  if (native.dspark_cpu_attend_block(slot(), plan, qkv, rope, cells, count, causal, windowed, stream) !== 0) {
    throw failure("cpu_attend_block", qkv, rope);
  }
  return commit();
}

/** Keys, then values, of tokens [from, to) of a float32 store: [2, kvHeads, to − from, headDim]. */
export function readKvStore(store: KvStore, after: MlxArray, from: number, to: number): MlxArray {
  if (native.dspark_cpu_kv_read(slot(), store, after, from, to, stream) !== 0) throw failure("cpu_kv_read", after);
  return commit();
}

/**
 * The greedy walk over a draft. f_i is the row of `before` of the id ahead (`anchor`, int32 or uint32 [1], then ids[i − 1];
 * an id that the table does not have counts as 0), ids[i] the first largest of base[i] + f_i · afterᵀ among `width`
 * columns. base [count, width or more] → ids uint32 [count], features f [count, rank].
 */
export function greedyWalk(
  base: MlxArray,
  anchor: MlxArray,
  before: PackedMatrix,
  after: PackedMatrix,
  width: number,
): { ids: MlxArray; features: MlxArray } {
  const status = native.dspark_cpu_greedy_walk(slot(), secondSlot(), base, anchor, before, after, width, stream);
  if (status !== 0) throw failure("cpu_greedy_walk", base, anchor);
  const ids = commit();
  return { ids, features: commitSecond("cpu_greedy_walk") };
}
