/** `GET /metrics` as JSON (admin-metrics.md §2): totals since the start, over all models that were loaded. */
import { type Static, Type as t } from "@sinclair/typebox";
import type { EngineStatus } from "../../engine/client.ts";
import type { EngineStats } from "../../engine/protocol.ts";
import { verdictSchema } from "../../machine/verdict.ts";
import { count, modeSchema, orNull } from "../openapi/schemas.ts";
import type { ServerOptions } from "../options.ts";
import {
  allocatorBody,
  allocatorSchema,
  disabledSchema,
  type MachineFacts,
  modelFacts,
  NO_GUARD,
  NO_PREFIX_CACHE,
  queueSchema,
  readyModel,
  systemBody,
  systemSchema,
} from "./facts.ts";
import { rounded, roundStatsSchema } from "./round-log.ts";
import type { Telemetry } from "./telemetry.ts";

const autoCapSchema = t.Object({
  cap: count,
  p: orNull(t.Number({ description: "What the cap's controller takes the chance of a draft to be." })),
  rounds: count,
});

const batchingSchema = t.Object({
  max_batch: t.Integer(),
  batched_requests: count,
  batches: count,
  max_batch_seen: count,
  serial_requests: count,
  rows_active: orNull(count),
  queued: orNull(count),
  steps: orNull(count),
  drafted: count,
  accepted: count,
});

export const metricsSchema = t.Object(
  {
    model: orNull(t.String()),
    mode: orNull(modeSchema),
    requests: count,
    prompt_tokens: count,
    completion_tokens: count,
    mean_accept_len: t.Number(),
    mean_tokens_per_sec: t.Number(),
    mean_decode_tokens_per_sec: t.Number(),
    prefix_cache: disabledSchema,
    auto_cap: orNull(autoCapSchema),
    rounds: roundStatsSchema,
    queue: queueSchema,
    batching: batchingSchema,
    memory: allocatorSchema,
    system: systemSchema,
    verdict: orNull(verdictSchema),
    memory_guard: disabledSchema,
  },
  { $id: "Metrics" },
);

export interface MetricsInput {
  readonly telemetry: Telemetry;
  readonly facts: MachineFacts;
  readonly status: EngineStatus;
  /** Null: the engine thread has not told them. */
  readonly engine: EngineStats | null;
  readonly queue: { readonly running: number; readonly waiting: number };
  readonly options: ServerOptions;
}

export function metricsBody(input: MetricsInput): Static<typeof metricsSchema> {
  const { telemetry, facts, status, engine, queue, options } = input;
  const model = readyModel(status);
  const { counters, sharing, rows } = telemetry;
  const completion = counters.completionTokens.total;
  const decode = counters.decodeSeconds.total;
  const stats = telemetry.rounds.stats();
  return {
    model: model?.id ?? null,
    mode: model?.mode ?? null,
    requests: counters.requests.total,
    prompt_tokens: counters.promptTokens.total,
    completion_tokens: completion,
    mean_accept_len: stats.mean_accept_len,
    mean_tokens_per_sec: rate(completion, decode + counters.prefillSeconds.total),
    mean_decode_tokens_per_sec: rate(completion, decode),
    prefix_cache: NO_PREFIX_CACHE,
    auto_cap: autoCap(telemetry, model?.drafting?.maxDraft === "auto"),
    rounds: stats,
    queue,
    batching: {
      max_batch: options.maxBatch,
      batched_requests: sharing.batched,
      batches: sharing.batches,
      max_batch_seen: rows.peak,
      serial_requests: sharing.serial,
      rows_active: engine?.activeRows ?? null,
      queued: engine?.queuedRows ?? null,
      steps: engine?.steps ?? null,
      drafted: counters.draftTokens.total,
      accepted: counters.acceptedTokens.total,
    },
    memory: allocatorBody(engine),
    system: systemBody(facts.memory()),
    verdict: model === null ? null : modelFacts(model, facts, telemetry).verdict,
    memory_guard: NO_GUARD,
  };
}

/** Null unless the cap is chosen round by round and rounds have been. */
function autoCap({ cap: { cap, acceptance }, rounds }: Telemetry, auto: boolean): Static<typeof autoCapSchema> | null {
  if (!auto || cap === null) return null;
  return { cap, p: acceptance === null ? null : rounded(acceptance, 4), rounds: rounds.stats().rounds };
}

function rate(tokens: number, seconds: number): number {
  return seconds > 0 ? rounded(tokens / seconds, 1) : 0;
}
