/**
 * Strings by code points, and the character classes of Python's `str` where JavaScript's differ
 * (white space: U+001C–U+001F and U+0085 count, U+FEFF does not).
 */

/** Code points of Python's `str.isspace`, in ranges, for use inside a regular expression's brackets. */
const SPACE_RANGES: readonly (readonly [number, number])[] = [
  [0x09, 0x0d],
  [0x1c, 0x20],
  [0x85, 0x85],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
];

const SPACES: ReadonlySet<number> = new Set(
  SPACE_RANGES.flatMap(([from, to]) => Array.from({ length: to - from + 1 }, (_, index) => from + index)),
);

/** The class as regular expression text, brackets included. */
export const SPACE_CLASS = `[${SPACE_RANGES.map(([from, to]) => `${escapeCode(from)}-${escapeCode(to)}`).join("")}]`;

function escapeCode(code: number): string {
  return `\\u${code.toString(16).padStart(4, "0")}`;
}

export function isSpaceCode(code: number): boolean {
  return SPACES.has(code);
}

const SURROGATE = /[\ud800-\udfff]/;

/** True when every code point is one UTF-16 unit, so indices of both kinds agree. */
export function isFlat(text: string): boolean {
  return !SURROGATE.test(text);
}

/** Number of code points. */
export function codePointLength(text: string): number {
  if (isFlat(text)) return text.length;
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

/** The code points as strings. */
export function codePoints(text: string): string[] {
  return Array.from(text);
}

export function trimStart(text: string, isTrimmed: (code: number) => boolean = isSpaceCode): string {
  let start = 0;
  while (start < text.length) {
    const code = text.codePointAt(start) ?? 0;
    if (!isTrimmed(code)) break;
    start += code > 0xffff ? 2 : 1;
  }
  return text.slice(start);
}

export function trimEnd(text: string, isTrimmed: (code: number) => boolean = isSpaceCode): string {
  let end = text.length;
  while (end > 0) {
    const low = text.charCodeAt(end - 1);
    const pair = low >= 0xdc00 && low <= 0xdfff && end > 1 ? (text.codePointAt(end - 2) ?? 0) : 0;
    const code = pair > 0xffff ? pair : low;
    if (!isTrimmed(code)) break;
    end -= code > 0xffff ? 2 : 1;
  }
  return text.slice(0, end);
}

/** Order of two strings by code points, as Python compares: negative, 0 or positive. */
export function compareText(left: string, right: string): number {
  if (left === right) return 0;
  if (isFlat(left) && isFlat(right)) return left < right ? -1 : 1;
  const a = codePoints(left);
  const b = codePoints(right);
  for (let index = 0; index < Math.min(a.length, b.length); index += 1) {
    const difference = (a[index]?.codePointAt(0) ?? 0) - (b[index]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}
