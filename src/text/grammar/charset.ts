/** Sets of code points as sorted ranges that neither touch nor overlap. Surrogates are no characters and never in a set. */
export type Range = readonly [from: number, to: number];
export type CharSet = readonly Range[];

export const NOTHING: CharSet = [];
export const ANYTHING: CharSet = [
  [0, 0xd7ff],
  [0xe000, 0x10ffff],
];
export const ASCII: CharSet = [[0, 0x7f]];
export const NON_ASCII: CharSet = [
  [0x80, 0xd7ff],
  [0xe000, 0x10ffff],
];

/** The set of these ranges, in any order. */
export function charSet(ranges: readonly Range[]): CharSet {
  const sorted = [...ranges].filter(([from, to]) => from <= to).sort((a, b) => a[0] - b[0]);
  const out: [number, number][] = [];
  for (const [from, to] of sorted) {
    const last = out.at(-1);
    if (last !== undefined && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else out.push([from, to]);
  }
  return intersection(out, ANYTHING);
}

export function charsOf(text: string): CharSet {
  return charSet(Array.from(text, (character): Range => [codeOf(character), codeOf(character)]));
}

export function union(...sets: readonly CharSet[]): CharSet {
  return charSet(sets.flat());
}

export function intersection(a: CharSet, b: CharSet): CharSet {
  const out: Range[] = [];
  let [i, j] = [0, 0];
  for (;;) {
    const [x, y] = [a[i], b[j]];
    if (x === undefined || y === undefined) return out;
    const from = Math.max(x[0], y[0]);
    const to = Math.min(x[1], y[1]);
    if (from <= to) out.push([from, to]);
    if (x[1] < y[1]) i++;
    else j++;
  }
}

export function complement(set: CharSet): CharSet {
  const out: Range[] = [];
  let next = 0;
  for (const [from, to] of set) {
    if (from > next) out.push([next, from - 1]);
    next = to + 1;
  }
  if (next <= 0x10ffff) out.push([next, 0x10ffff]);
  return intersection(out, ANYTHING);
}

export function difference(a: CharSet, b: CharSet): CharSet {
  return intersection(a, complement(b));
}

export function size(set: CharSet): number {
  return set.reduce((sum, [from, to]) => sum + to - from + 1, 0);
}

export function isSubset(a: CharSet, b: CharSet): boolean {
  return difference(a, b).length === 0;
}

export function* codePoints(set: CharSet): Generator<number> {
  for (const [from, to] of set) for (let code = from; code <= to; code++) yield code;
}

function codeOf(character: string): number {
  return character.codePointAt(0) ?? 0;
}
