/** How far a load is, as `/health` and `/admin/status` say it (admin-metrics.md §1, §6). */
import { basename } from "node:path";
import type { EngineStatus } from "../../engine/client.ts";
import type { LoadProgress } from "../../engine/protocol.ts";
import { withoutPaths } from "../errors.ts";

export function statusBody(status: EngineStatus) {
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

export function phaseOf(progress: LoadProgress | null): "loading" | "warming_up" {
  return progress?.phase === "warmup" ? "warming_up" : "loading";
}

/** Null when nothing is downloaded right now. */
export function downloadOf(status: EngineStatus) {
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
