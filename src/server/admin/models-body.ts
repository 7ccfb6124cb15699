/** `GET /admin/models` (admin-metrics.md §7): what could be loaded, with what is known of this machine and of now. */
import type { ModelInfo } from "../../engine/protocol.ts";
import { ceilingAt } from "../../machine/roofline.ts";
import { type MachineFacts, REFERENCE_GB_S } from "../telemetry/facts.ts";

/** A row of the registry; its other fields are passed on. */
export interface CatalogueModel {
  readonly weight_bytes: number | null;
}

/** What `mlx-dspark models --json` tells. */
export interface Catalogue {
  readonly models: readonly CatalogueModel[];
  readonly installed: readonly object[];
  readonly disk: object;
  readonly model_dirs: readonly string[];
}

export function modelsBody(catalogue: Catalogue, loaded: ModelInfo | null, facts: MachineFacts) {
  const { gbS, source } = facts.bandwidth(loaded);
  const { installed, disk, model_dirs } = catalogue;
  return {
    models: catalogue.models.map((row) => ({ ...row, ceiling_tps: denseCeiling(row.weight_bytes, gbS) })),
    installed,
    disk,
    loaded: loaded?.id ?? null,
    model_dirs,
    bandwidth: {
      measured_gb_s: loaded?.bandwidth?.gbS ?? null,
      theoretical_gb_s: facts.system().chip.bandwidthGbS,
      gb_s: gbS,
      source: gbS === null ? "unknown" : source,
      reference_gb_s: REFERENCE_GB_S,
      scale: facts.scale(loaded),
    },
  };
}

/** As if every weight were read in every step. */
function denseCeiling(weightBytes: number | null, gbS: number | null): number | null {
  if (weightBytes === null || weightBytes <= 0) return null;
  return ceilingAt(0, { activeBytes: weightBytes, kvBytesPerToken: 0 }, gbS).ceiling_tps;
}
