/**
 * Which tokens may come next, in the form that costs the device least (structured-output.md §5): few that may, few that
 * may not, or a bit for each. Every form gives the same choice: illegal tokens count as −∞ before any argmax or softmax.
 */
import { boolArray, concatenate, int32Array, type MlxArray, scalar, shapeOf, uint32Array } from "../mlx/array.ts";
import { argmax, full, putAlongAxis, slice, take, takeAlongAxis, where } from "../mlx/ops.ts";

export type TokenMask =
  /** Nothing is masked. */
  | { readonly kind: "all" }
  /** Only these, ascending, at least one. */
  | { readonly kind: "allow"; readonly ids: Int32Array }
  /** All but these, ascending. */
  | { readonly kind: "deny"; readonly ids: Int32Array }
  /** Bit `id & 31` of word `id >> 5` is 1 where the token may come. */
  | { readonly kind: "dense"; readonly words: Uint32Array };

export const ALL_TOKENS: TokenMask = { kind: "all" };

/** Lists up to this length beat a bit for each token (structured-output.md §5, measured on MLX's CPU device). */
const SPARSE_MAX = 4096;

/** Nothing may follow: the text could not go on. */
export class NoLegalToken extends Error {
  override readonly name = "NoLegalToken";
  constructor() {
    super("no legal token");
  }
}

export function allows(words: Uint32Array, id: number): boolean {
  return (((words[id >> 5] ?? 0) >>> (id & 31)) & 1) === 1;
}

/**
 * The form of a bit mask.
 * @param words as in `TokenMask`, at least ⌈vocab / 32⌉; kept by a dense form
 * @param vocab bits beyond it mean nothing
 * @throws NoLegalToken
 */
export function tokenMask(words: Uint32Array, vocab: number): TokenMask {
  const mask = maskOf(words, vocab);
  if (mask === null) throw new NoLegalToken();
  return mask;
}

/**
 * The forms of the masks along a draft, up to the first place where nothing may follow.
 * @param words row-major, `width` words a place
 * @throws NoLegalToken where that is the first place
 */
export function masksAlong(words: Uint32Array, width: number, vocab: number): TokenMask[] {
  const masks = [tokenMask(words.subarray(0, width), vocab)];
  for (let at = width; at < words.length; at += width) {
    const mask = maskOf(words.subarray(at, at + width), vocab);
    if (mask === null) break;
    masks.push(mask);
  }
  return masks;
}

/** null: no bit is set. */
function maskOf(words: Uint32Array, vocab: number): TokenMask | null {
  const legal = popcount(words, vocab);
  if (legal === 0) return null;
  if (legal === vocab) return ALL_TOKENS;
  if (legal <= SPARSE_MAX) return { kind: "allow", ids: idsOf(words, vocab, legal, 0) };
  if (vocab - legal <= SPARSE_MAX) return { kind: "deny", ids: idsOf(words, vocab, vocab - legal, -1) };
  return { kind: "dense", words };
}

/** The bits of word `w` that stand for tokens. */
function wordOf(words: Uint32Array, w: number, vocab: number): number {
  const bits = vocab - 32 * w;
  const word = (words[w] ?? 0) | 0;
  return bits >= 32 ? word : word & ((1 << bits) - 1);
}

function popcount(words: Uint32Array, vocab: number): number {
  const count = Math.ceil(vocab / 32);
  let total = 0;
  for (let w = 0; w < count; w++) {
    let x = wordOf(words, w, vocab);
    if (x === 0) continue;
    x -= (x >>> 1) & 0x55555555;
    x = (x & 0x33333333) + ((x >>> 2) & 0x33333333);
    total += Math.imul((x + (x >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
  }
  return total;
}

/** The `count` ids whose bit differs from the mask's own: `flip` 0 for set bits, −1 for clear ones. */
function idsOf(words: Uint32Array, vocab: number, count: number, flip: 0 | -1): Int32Array {
  const ids = new Int32Array(count);
  let found = 0;
  for (let w = 0; found < count; w++) {
    let x = (words[w] ?? 0) ^ flip;
    while (x !== 0 && found < count) {
      const bit = 31 - Math.clz32(x & -x);
      const id = 32 * w + bit;
      if (id >= vocab) break;
      ids[found++] = id;
      x &= x - 1;
    }
  }
  return ids;
}

/** Argmax of each row among its legal tokens, the first one on ties: logits [n, V], one mask a row → uint32 [n]. */
export function maskedArgmax(logits: MlxArray, masks: readonly TokenMask[]): MlxArray {
  if (masks.every(({ kind }) => kind === "all")) return argmax(logits, -1);
  return concatenate(
    masks.map((mask, i) => argmaxOf(rowOf(logits, i, masks.length), mask)),
    0,
  );
}

function argmaxOf(row: MlxArray, mask: TokenMask): MlxArray {
  if (mask.kind !== "allow") return argmax(masked(row, mask), -1);
  if (mask.ids.length === 1) return uint32Array(mask.ids);
  const ids = uint32Array(mask.ids);
  return take(ids, argmax(take(row, ids, 1), -1), 0);
}

/** Logits [n, V] with −∞ at every illegal token, one mask a row. */
export function maskedLogits(logits: MlxArray, masks: readonly TokenMask[]): MlxArray {
  if (masks.every(({ kind }) => kind === "all")) return logits;
  return concatenate(
    masks.map((mask, i) => masked(rowOf(logits, i, masks.length), mask)),
    0,
  );
}

function rowOf(logits: MlxArray, i: number, rows: number): MlxArray {
  return rows === 1 ? logits : slice(logits, [i, 0], [i + 1, shapeOf(logits)[1] ?? 0]);
}

/** row [1, V] */
function masked(row: MlxArray, mask: TokenMask): MlxArray {
  if (mask.kind === "all") return row;
  const never = scalar(Number.NEGATIVE_INFINITY, "float32");
  const vocab = shapeOf(row)[1] ?? 0;
  if (mask.kind === "dense") return where(boolArray(spread(mask.words, vocab), [1, vocab]), row, never);
  const ids = int32Array(mask.ids, [1, mask.ids.length]);
  if (mask.kind === "deny") return putAlongAxis(row, ids, never, -1);
  return putAlongAxis(full([1, vocab], never, "float32"), ids, takeAlongAxis(row, ids, -1), -1);
}

/** Four bools for each half byte of a mask, as one 32-bit store: little-endian, as every device of MLX is. */
const NIBBLES = Uint32Array.from({ length: 16 }, (_, n) => {
  const bit = (at: number) => (n >> at) & 1;
  return bit(0) | (bit(1) << 8) | (bit(2) << 16) | (bit(3) << 24);
});

/** A byte for each token. Spread here, a mask costs a tenth of what shifts on the device do. */
function spread(words: Uint32Array, vocab: number): Uint8Array {
  const count = Math.ceil(vocab / 32);
  const out = new Uint32Array(8 * count);
  for (let w = 0; w < count; w++) {
    const word = words[w] as number;
    for (let n = 0; n < 8; n++) out[8 * w + n] = NIBBLES[(word >>> (4 * n)) & 15] as number;
  }
  return new Uint8Array(out.buffer, 0, vocab);
}
