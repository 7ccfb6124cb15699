/** `GET /metrics` as JSON (admin-metrics.md §2): totals since the start, over all models that were loaded. */
import type { EngineStatus } from "../../engine/client.ts";
import type { EngineStats } from "../../engine/protocol.ts";
import type { ServerOptions } from "../options.ts";
import {
  allocatorBody,
  type MachineFacts,
  modelFacts,
  NO_GUARD,
  NO_PREFIX_CACHE,
  readyModel,
  systemBody,
} from "./facts.ts";
import { rounded } from "./round-log.ts";
import type { Telemetry } from "./telemetry.ts";

export interface MetricsInput {
  readonly telemetry: Telemetry;
  readonly facts: MachineFacts;
  readonly status: EngineStatus;
  /** Null: the engine thread has not told them. */
  readonly engine: EngineStats | null;
  readonly queue: { readonly running: number; readonly waiting: number };
  readonly options: ServerOptions;
}

export function metricsBody({ telemetry, facts, status, engine, queue, options }: MetricsInput) {
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
function autoCap({ cap: { cap, acceptance }, rounds }: Telemetry, auto: boolean) {
  if (!auto || cap === null) return null;
  return { cap, p: acceptance === null ? null : rounded(acceptance, 4), rounds: rounds.stats().rounds };
}

function rate(tokens: number, seconds: number): number {
  return seconds > 0 ? rounded(tokens / seconds, 1) : 0;
}
