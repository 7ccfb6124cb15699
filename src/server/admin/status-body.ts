/** How far a load is, as `/health` and `/admin/status` say it (admin-metrics.md §1, §6). */
import { basename } from "node:path";
import { type Static, Type as t } from "@sinclair/typebox";
import type { EngineStatus } from "../../engine/client.ts";
import type { LoadProgress } from "../../engine/protocol.ts";
import { withoutPaths } from "../errors.ts";
import { count, oneOf, orNull } from "../openapi/schemas.ts";

export const phaseSchema = oneOf("loading", "warming_up");

export const downloadSchema = t.Object(
  {
    repo: t.String(),
    bytes_done: count,
    bytes_total: orNull(count),
    bytes_per_s: orNull(t.Number()),
    file: orNull(t.String()),
    files_done: orNull(count),
    files_total: orNull(count),
    eta_s: orNull(t.Number()),
    resumed_bytes: orNull(t.Integer({ description: "Of them, what was there before." })),
  },
  { $id: "Download" },
);

export const statusSchema = t.Object(
  {
    ready: t.Boolean(),
    loading: t.Boolean(),
    model: orNull(t.String()),
    error: orNull(t.String({ description: "Why the last load failed." })),
    phase: t.Optional(phaseSchema),
    download: t.Optional(orNull(downloadSchema)),
  },
  { $id: "LoadStatus" },
);

export function statusBody(status: EngineStatus): Static<typeof statusSchema> {
  return {
    ready: status.state === "ready",
    loading: status.state === "loading",
    model: status.state === "ready" ? status.model.id : null,
    error: errorOf(status),
    ...(status.state === "loading" && { phase: phaseOf(status.progress), download: downloadOf(status) }),
  };
}

/** The last failed load's message. */
export function errorOf(status: EngineStatus): string | null {
  return status.state === "failed" ? withoutPaths(status.error.message) : null;
}

export function phaseOf(progress: LoadProgress | null): Static<typeof phaseSchema> {
  return progress?.phase === "warmup" ? "warming_up" : "loading";
}

/** Null when nothing is downloaded right now. */
export function downloadOf(status: EngineStatus): Static<typeof downloadSchema> | null {
  if (status.state !== "loading" || status.progress?.phase !== "download") return null;
  const { requested, progress } = status;
  const { bytesDone, bytesTotal, bytesPerSecond, download } = progress;
  return {
    repo: download?.repo ?? (requested.startsWith("/") ? basename(requested) : requested),
    bytes_done: bytesDone ?? 0,
    bytes_total: bytesTotal,
    bytes_per_s: bytesPerSecond,
    file: download?.file ?? null,
    files_done: download?.filesDone ?? null,
    files_total: download?.filesTotal ?? null,
    eta_s: download?.etaSeconds ?? null,
    resumed_bytes: download?.resumedBytes ?? null,
  };
}
