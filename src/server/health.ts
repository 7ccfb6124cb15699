/** `GET /health`: readiness and configuration, from the first second on and without a key (admin-metrics.md §1). */
import { basename } from "node:path";
import type { EngineStatus } from "../engine/client.ts";
import type { EngineStats, LoadProgress } from "../engine/protocol.ts";
import { withoutPaths } from "./errors.ts";
import type { TextSource } from "./generation/text.ts";
import type { ServerOptions } from "./options.ts";

export interface HealthInput {
  readonly status: EngineStatus;
  /** Text side of the loaded model; null until it is read, also for a moment after the engine is ready. */
  readonly text: Pick<TextSource, "warnings"> | null;
  /** Null: the engine thread has not told them. */
  readonly counters: EngineStats | null;
  readonly queue: { readonly running: number; readonly waiting: number };
  readonly options: ServerOptions;
  readonly uptimeSeconds: number;
}

/** The body of `/health`; `status` is `ok` as soon as requests are answered, also while the engine is busy. */
export function healthBody(input: HealthInput): Record<string, unknown> {
  const { status, options } = input;
  if (status.state === "ready" && input.text !== null) {
    const { model } = status;
    return {
      status: "ok",
      model: model.id,
      mode: model.mode,
      target: basename(model.dir),
      drafter: model.drafter,
      max_draft: String(model.drafting?.maxDraft ?? 0),
      lookup_drafts: model.drafting?.lookupDrafts ?? false,
      confidence_threshold: model.drafting?.confidenceThreshold ?? 0,
      drafter_window: model.drafting?.drafterWindow ?? null,
      context_window: model.contextWindow,
      kv_bits: options.kvBits,
      warnings: [...model.notes, ...input.text.warnings].map((note) => warning("load_note", note)),
      max_output_tokens: Math.min(options.maxTokensCap, model.contextWindow),
      version: options.version,
      device: model.backend,
      backend: model.backend.startsWith("metal") ? "metal" : "cpu",
      max_batch: options.maxBatch,
      queue: input.queue,
      prefix_cache: false,
      engine: input.counters === null ? null : engineCounters(input.counters),
      uptime_s: Math.floor(input.uptimeSeconds),
    };
  }
  const loading = status.state === "loading" || status.state === "ready";
  const progress = status.state === "loading" ? status.progress : null;
  return {
    status: loading ? "loading" : "no_model",
    model: null,
    loading,
    phase: loading ? (progress?.phase === "warmup" ? "warming_up" : "loading") : null,
    download:
      status.state === "loading" && progress?.phase === "download" ? download(status.requested, progress) : null,
    // What is going on now, for a client that shows more than the two phases.
    progress: progress === null ? null : { phase: progress.phase, fraction: progress.fraction },
    warnings: [],
    error: status.state === "failed" ? withoutPaths(status.error.message) : null,
    version: options.version,
    uptime_s: Math.floor(input.uptimeSeconds),
  };
}

/** Flat over any number of requests once the engine is idle: `live_arrays` and `active_bytes`. */
function engineCounters(stats: EngineStats) {
  return {
    live_arrays: stats.liveArrays,
    active_rows: stats.activeRows,
    steps: stats.steps,
    requests_done: stats.requestsDone,
    active_bytes: stats.mlxActiveBytes,
    cache_bytes: stats.mlxCacheBytes,
  };
}

function warning(code: string, message: string) {
  return { code, level: "attention", message: withoutPaths(message), action: null };
}

function download(requested: string, progress: LoadProgress) {
  return {
    repo: requested.startsWith("/") ? basename(requested) : requested,
    bytes_done: progress.bytesDone ?? 0,
    bytes_total: progress.bytesTotal,
    bytes_per_s: progress.bytesPerSecond,
  };
}
