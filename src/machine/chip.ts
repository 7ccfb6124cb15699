/**
 * Apple's chips by name: generation, family, and the memory bandwidth that Apple states (GB/s). A Max or Ultra comes in
 * bins of GPU cores with different memory; an unknown number of cores counts as the higher bin.
 */

export interface Chip {
  /** As the system names it. */
  readonly name: string;
  /** 1 of "Apple M1 Pro"; null: not one of these chips. */
  readonly generation: number | null;
  readonly family: "base" | "Pro" | "Max" | "Ultra" | null;
  readonly gpuCores: number | null;
  /** Stated by the maker, GB/s; null: unknown. */
  readonly bandwidthGbS: number | null;
  readonly bandwidthSource: "table" | "table-binned" | "unknown";
}

/** GB/s by family and generation; of a pair, the first holds up to so many GPU cores. */
type Bandwidth = number | { readonly upToCores: number; readonly low: number; readonly high: number };

const TABLE: Readonly<Record<NonNullable<Chip["family"]>, readonly (Bandwidth | null)[]>> = {
  base: [68, 100, 102, 120, 153],
  Pro: [200, 200, 150, 273, 307],
  Max: [
    400,
    400,
    { upToCores: 30, low: 307, high: 410 },
    { upToCores: 32, low: 410, high: 546 },
    { upToCores: 32, low: 460, high: 614 },
  ],
  Ultra: [800, 800, 819, null, null],
};

export function chipOf(name: string, gpuCores: number | null): Chip {
  const [, number, family = "base"] = /^Apple M(\d+)(?: (Pro|Max|Ultra))?\b/.exec(name) ?? [];
  if (number === undefined || (family !== "base" && family !== "Pro" && family !== "Max" && family !== "Ultra")) {
    return { name, generation: null, family: null, gpuCores, bandwidthGbS: null, bandwidthSource: "unknown" };
  }
  const generation = Number(number);
  const known = TABLE[family][generation - 1] ?? null;
  const common: Pick<Chip, "name" | "generation" | "family" | "gpuCores"> = { name, generation, family, gpuCores };
  if (known === null) return { ...common, bandwidthGbS: null, bandwidthSource: "unknown" };
  if (typeof known === "number") return { ...common, bandwidthGbS: known, bandwidthSource: "table" };
  const low = gpuCores !== null && gpuCores <= known.upToCores;
  return { ...common, bandwidthGbS: low ? known.low : known.high, bandwidthSource: "table-binned" };
}
