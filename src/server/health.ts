/** `GET /health`: readiness and configuration, from the first second on and without a key (admin-metrics.md §1). */
import { basename } from "node:path";
import { type Static, Type as t } from "@sinclair/typebox";
import type { EngineStatus } from "../engine/client.ts";
import type { EngineStats } from "../engine/protocol.ts";
import type { MemoryState } from "../machine/system.ts";
import type { LoadWish } from "./admin/model-slot.ts";
import { downloadOf, downloadSchema, errorOf, phaseOf, phaseSchema } from "./admin/status-body.ts";
import { withoutPaths } from "./errors.ts";
import { callFamily } from "./generation/chat-prompt.ts";
import type { TextSource } from "./generation/text.ts";
import { count, modeSchema, oneOf, orNull } from "./openapi/schemas.ts";
import type { ServerOptions } from "./options.ts";
import { disabledSchema, NO_GUARD, queueSchema } from "./telemetry/facts.ts";

const warningSchema = t.Object(
  {
    code: oneOf("load_note", "memory_pressure"),
    level: oneOf("attention", "problem"),
    message: t.String(),
    action: orNull(t.String()),
  },
  { $id: "Warning" },
);

const engineSchema = t.Object({
  live_arrays: count,
  active_rows: count,
  steps: count,
  requests_done: count,
  active_bytes: count,
  cache_bytes: count,
});

const serverFields = {
  warnings: t.Array(warningSchema),
  version: t.String(),
  uptime_s: count,
};

const readySchema = t.Object(
  {
    status: t.Literal("ok", { description: "Requests are answered, also while others run." }),
    model: t.String(),
    mode: modeSchema,
    target: t.String(),
    drafter: orNull(t.String()),
    max_draft: t.String({ description: "A number, or auto." }),
    lookup_drafts: t.Boolean(),
    confidence_threshold: t.Number(),
    race_arm_confidence: t.Literal(false),
    small_m: t.Literal(false),
    sdpa_split: t.Literal(false),
    multirow_attn: t.Literal(false),
    cpu_split: t.Null(),
    cpu_split_suspended: t.Null(),
    drafter_window: orNull(count),
    warmup: t.Boolean(),
    context_window: t.Integer(),
    kv_bits: oneOf(0, 4, 8),
    memory_guard: disabledSchema,
    max_output_tokens: t.Integer(),
    supports_reasoning_effort: t.Boolean(),
    thinking_default: oneOf("on", "off"),
    reasoning_effort: orNull(t.String()),
    tool_format: orNull(t.String({ description: "How the model writes calls." })),
    device: t.String(),
    backend: oneOf("metal", "cpu"),
    max_batch: t.Integer(),
    queue: queueSchema,
    prefix_cache: t.Literal(false),
    engine: orNull(engineSchema),
    ...serverFields,
  },
  { $id: "HealthReady" },
);

const waitingSchema = t.Object(
  {
    status: oneOf("loading", "no_model"),
    model: t.Null(),
    loading: t.Boolean(),
    phase: orNull(phaseSchema),
    download: orNull(downloadSchema),
    progress: orNull(t.Object({ phase: t.String(), fraction: orNull(t.Number()) })),
    error: orNull(t.String({ description: "Why the last load failed." })),
    ...serverFields,
  },
  { $id: "HealthWithoutModel" },
);

export const healthSchema = t.Union([readySchema, waitingSchema]);

type Warning = Static<typeof warningSchema>;

export interface HealthInput {
  readonly status: EngineStatus;
  /** Text side of the loaded model; null until it is read, also for a moment after the engine is ready. */
  readonly text: TextSource | null;
  /** Null: the engine thread has not told them. */
  readonly counters: EngineStats | null;
  readonly queue: { readonly running: number; readonly waiting: number };
  readonly options: ServerOptions;
  /** What the model was loaded with; null: this server does not load models. */
  readonly wish: LoadWish | null;
  readonly memory: MemoryState;
  readonly uptimeSeconds: number;
}

/** The body of `/health`; `status` is `ok` as soon as requests are answered, also while the engine is busy. */
export function healthBody(input: HealthInput): Static<typeof healthSchema> {
  const { status, options, text, wish } = input;
  const warnings = memoryWarnings(input.memory);
  if (status.state === "ready" && text !== null) {
    const { model } = status;
    const { drafting } = model;
    return {
      status: "ok",
      model: model.id,
      mode: model.mode,
      target: basename(model.dir),
      drafter: model.drafter,
      max_draft: String(drafting?.maxDraft ?? 0),
      lookup_drafts: drafting?.lookupDrafts ?? false,
      confidence_threshold: drafting?.confidenceThreshold ?? 0,
      // What this build has not: kernels of Metal, a guard, a race.
      race_arm_confidence: false,
      small_m: false,
      sdpa_split: false,
      multirow_attn: false,
      cpu_split: null,
      cpu_split_suspended: null,
      drafter_window: drafting?.drafterWindow ?? null,
      warmup: wish?.warmup ?? false,
      context_window: model.contextWindow,
      kv_bits: wish?.spec.kvBits ?? options.kvBits,
      warnings: [...warnings, ...[...model.notes, ...text.warnings].map((note) => warning("load_note", note))],
      memory_guard: NO_GUARD,
      max_output_tokens: Math.min(options.maxTokensCap, model.contextWindow),
      supports_reasoning_effort: text.supportsReasoningEffort,
      thinking_default: (options.thinking ?? text.thinkingDefault) ? "on" : "off",
      reasoning_effort: options.reasoningEffort ?? null,
      tool_format: callFamily(text, options),
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
    phase: loading ? phaseOf(progress) : null,
    download: downloadOf(status),
    // What is going on now, for a client that shows more than the two phases.
    progress: progress === null ? null : { phase: progress.phase, fraction: progress.fraction },
    warnings,
    error: errorOf(status),
    version: options.version,
    uptime_s: Math.floor(input.uptimeSeconds),
  };
}

/** Flat over any number of requests once the engine is idle: `live_arrays` and `active_bytes`. */
function engineCounters(stats: EngineStats): Static<typeof engineSchema> {
  return {
    live_arrays: stats.liveArrays,
    active_rows: stats.activeRows,
    steps: stats.steps,
    requests_done: stats.requestsDone,
    active_bytes: stats.mlxActiveBytes,
    cache_bytes: stats.mlxCacheBytes,
  };
}

function warning(
  code: Warning["code"],
  message: string,
  level: Warning["level"] = "attention",
  action: string | null = null,
): Warning {
  return { code, level, message: withoutPaths(message), action };
}

function memoryWarnings({ pressure }: MemoryState) {
  if (pressure !== "warn" && pressure !== "critical") return [];
  const level = pressure === "critical" ? "problem" : "attention";
  const action = "close other programs, or load a smaller model";
  return [warning("memory_pressure", `memory pressure is ${pressure}`, level, action)];
}
