/** JSON text put together from parts that are JSON text already. */

/** Members in their order; a key that looks like a number keeps its place. */
export function objectText(members: Iterable<readonly [key: string, value: string]>): string {
  return `{${Array.from(members, ([key, value]) => `${JSON.stringify(key)}:${value}`).join(",")}}`;
}

export function listText(items: readonly string[]): string {
  return `[${items.join(",")}]`;
}

/**
 * JSON text of a number as models write it: an integer keeps all its digits, however many. Null for what is no finite
 * number.
 */
export function numberText(written: string): string | null {
  const integer = /^([+-]?)(\d+)$/.exec(written);
  if (integer !== null) {
    const digits = (integer[2] ?? "").replace(/^0+(?=\d)/, "");
    return integer[1] === "-" && digits !== "0" ? `-${digits}` : digits;
  }
  if (!/^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/.test(written)) return null;
  const value = Number(written);
  return Number.isFinite(value) ? JSON.stringify(value) : null;
}

/** The same for a number that must be whole: digits, or a fraction of zero. */
export function integerText(written: string): string | null {
  const text = numberText(written);
  if (text === null || /^-?\d+$/.test(text)) return text;
  const value = Number(text);
  return Number.isInteger(value) ? BigInt(value).toString() : null;
}
