/** A bound on nesting for values that something behind the server walks by recursion (templates, JSON writers). */

/** Ours: far above what any client nests. */
export const NESTING_MAX = 64;

/** True when `value` has more than `levels` levels of lists and objects. */
export function deeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  const items: readonly unknown[] = value instanceof Map ? [...value.values()] : Object.values(value);
  return items.some((item) => deeperThan(item, levels - 1));
}
