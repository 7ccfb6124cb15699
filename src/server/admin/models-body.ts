/** `GET /admin/models` (admin-metrics.md §7): what could be loaded, with what is known of this machine and of now. */
import { type Static, Type as t } from "@sinclair/typebox";
import type { ModelInfo } from "../../engine/protocol.ts";
import { ceilingAt } from "../../machine/roofline.ts";
import { count, oneOf, orNull, strings } from "../openapi/schemas.ts";
import { type MachineFacts, REFERENCE_GB_S } from "../telemetry/facts.ts";

const rowSchema = t.Object(
  {
    id: t.String(),
    target: t.String(),
    mode: oneOf("dspark", "dflash", "lookup"),
    dspark_drafter: orNull(t.String()),
    dflash_drafter: orNull(t.String()),
    ram: t.String(),
    ram_gb: t.Number(),
    speedup: t.Null(),
    lookup_drafts: t.Boolean(),
    fits: t.Boolean(),
    target_installed: t.Boolean(),
    drafter_installed: t.Boolean(),
    ready: t.Boolean({ description: "Nothing has to be downloaded." }),
    weight_bytes: orNull(count),
    drafter_bytes: orNull(count),
    ceiling_tps: orNull(t.Number({ description: "Tokens a second, as if every weight were read for each." })),
  },
  { $id: "KnownModel" },
);

const installedSchema = t.Object(
  {
    repo: t.String(),
    path: orNull(t.String({ description: "null for clients on other machines." })),
    size_bytes: count,
    size: t.String(),
    kind: oneOf("model", "drafter"),
    registry_id: orNull(t.String()),
    source: oneOf("cache", "lmstudio", "model_dirs"),
  },
  { $id: "InstalledModel" },
);

/** What `mlx-dspark models --json` tells. */
export const catalogueSchema = t.Object({
  models: t.Array(rowSchema),
  installed: t.Array(installedSchema),
  disk: t.Object({ total_bytes: count, total: t.String() }),
  loaded: t.Null(),
  model_dirs: strings,
  bandwidth: t.Null(),
});

export type Catalogue = Static<typeof catalogueSchema>;

export const modelsSchema = t.Object(
  {
    ...catalogueSchema.properties,
    loaded: orNull(t.String()),
    bandwidth: t.Object({
      measured_gb_s: orNull(t.Number()),
      theoretical_gb_s: orNull(t.Number()),
      gb_s: orNull(t.Number()),
      source: oneOf("measured", "theoretical", "unknown"),
      reference_gb_s: t.Number(),
      scale: orNull(t.Number({ description: "By how much published figures grow here." })),
    }),
  },
  { $id: "Models" },
);

export function modelsBody(
  catalogue: Catalogue,
  loaded: ModelInfo | null,
  facts: MachineFacts,
): Static<typeof modelsSchema> {
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
