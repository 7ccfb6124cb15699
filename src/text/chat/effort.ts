/** How hard a model is asked to think: one ordered scale, mapped to what a template accepts. */

export type Effort = "low" | "medium" | "high" | "xhigh";

/** From least to most. */
export const EFFORTS: readonly Effort[] = ["low", "medium", "high", "xhigh"];

/** Names of clients for places on the scale; `none` switches thinking off. */
const NAMES: Readonly<Record<string, Effort | "none">> = {
  none: "none",
  minimal: "low",
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "xhigh",
  max: "xhigh",
};

export function isEffortName(value: unknown): value is string {
  return typeof value === "string" && Object.hasOwn(NAMES, value);
}

/** The place on the scale, `none` for no thinking at all, null for a name that is not known. */
export function effortOf(name: string): Effort | "none" | null {
  return isEffortName(name) ? (NAMES[name] ?? null) : null;
}

/** The accepted effort nearest to the wanted one; of two equally near the lower. Null if none is accepted. */
export function nearestEffort(wanted: Effort, accepted: readonly Effort[]): Effort | null {
  const distance = (effort: Effort) => Math.abs(EFFORTS.indexOf(effort) - EFFORTS.indexOf(wanted));
  const ascending = EFFORTS.filter((effort) => accepted.includes(effort));
  return ascending.reduce<Effort | null>(
    (best, effort) => (best === null || distance(effort) < distance(best) ? effort : best),
    null,
  );
}
