/** `attribute='a.b.0'` of filters: a path of items, and the sort keys that filters derive from it. */
import { getItem } from "./access.ts";
import { textOf, Undefined, type Value } from "./values.ts";

/** Reads the path from a value. Whole numbers in the path are indices; null reads the value itself. */
export function pathReader(path: Value | null, fallback?: Value): (value: Value) => Value {
  const steps = pathSteps(path);
  return (value) => {
    let current = value;
    for (const step of steps) {
      current = getItem(current, step);
      if (fallback !== undefined && current instanceof Undefined) current = fallback;
    }
    return current;
  };
}

function pathSteps(path: Value | null): readonly Value[] {
  if (path === null) return [];
  const text = textOf(path);
  if (text === undefined) return [path];
  return text.split(".").map((step) => (/^\d+$/.test(step) ? BigInt(step) : step));
}

/** As `pathReader`, but text in lower case unless `caseSensitive`: the key of sorting and grouping. */
export function keyReader(path: Value | null, caseSensitive: boolean, fallback?: Value): (value: Value) => Value {
  const read = pathReader(path, fallback);
  if (caseSensitive) return read;
  return (value) => lowered(read(value));
}

export function lowered(value: Value): Value {
  return textOf(value)?.toLowerCase() ?? value;
}
