/** `GET /doctor` (admin-metrics.md §7): the examination, which the command line makes, and what there is to run. */
import { type Static, Type as t } from "@sinclair/typebox";
import { reportSchema } from "../../machine/doctor.ts";
import { oneOf, orNull, strings } from "../openapi/schemas.ts";

const modelSchema = t.Object({
  id: t.String(),
  target: t.String(),
  ram_gb: t.Number(),
  fits: t.Boolean(),
  state: oneOf("ready", "drafter missing", "not downloaded"),
});

const foldersSchema = t.Object({ cache: t.String(), hub: t.String(), lmstudio: strings, extra: strings });

/** What `mlx-dspark doctor --json` tells. */
export const machineReportSchema = t.Object({
  ...reportSchema.properties,
  models: t.Array(modelSchema),
  model_dirs: foldersSchema,
});

export type MachineReport = Static<typeof machineReportSchema>;

const { ok, problems } = reportSchema.properties;

export const doctorSchema = t.Union(
  [
    // Folders are nobody's business on another machine.
    t.Object({ ...machineReportSchema.properties, model_dirs: orNull(foldersSchema) }),
    t.Object({ ok, problems }, { description: "A server that cannot examine its machine." }),
  ],
  { $id: "Doctor" },
);

export type DoctorBody = Static<typeof doctorSchema>;
