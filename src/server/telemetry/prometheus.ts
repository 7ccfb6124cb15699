/** `GET /metrics` in Prometheus' text format 0.0.4 (admin-metrics.md §2); what has no source in this build has no name. */
import { Type as t } from "@sinclair/typebox";
import type { EngineStats } from "../../engine/protocol.ts";
import { queryReader } from "../http/query.ts";
import { oneOf } from "../openapi/schemas.ts";
import { modelFacts, readyModel } from "./facts.ts";
import type { MetricsInput } from "./metrics-body.ts";
import { countedHistogram, countedTotal, gauge } from "./series.ts";
import { PREFIX } from "./telemetry.ts";

export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

export const metricsQuery = t.Object({
  format: t.Optional(oneOf("json", "prometheus")),
});

const queryOf = queryReader(metricsQuery);

/** True when the client asks for text: by the query, or by an Accept that names it before any JSON. Throws 400. */
export function wantsPrometheus(request: Request): boolean {
  const { format } = queryOf(request.url);
  if (format !== undefined) return format === "prometheus";
  const accept = request.headers.get("accept") ?? "";
  return /(?:^|,)\s*(?:text\/plain|application\/openmetrics-text)\b/.test(accept) && !/application\/json/.test(accept);
}

const PRESSURE = { normal: 0, unknown: null, warn: 1, critical: 2 } as const;

export function prometheusText({ telemetry, facts, status, engine, queue, options }: MetricsInput): string {
  const model = readyModel(status);
  const labels = model === null ? null : { model: model.id, mode: model.mode };
  const ofModel = (value: number | null) => (labels === null ? [] : [[labels, value] as const]);
  const plain = (value: number | null) => [[{}, value] as const];
  const line = (name: string, help: string, values: Parameters<typeof gauge>[2]) =>
    gauge(`${PREFIX}${name}`, help, values);
  const rounds = telemetry.rounds.stats();
  const memory = facts.memory();
  const known = model === null ? null : modelFacts(model, facts, telemetry);
  const ceiling = known?.roofline.at_zero.ceiling_tps ?? null;
  const build = {
    version: options.version,
    mlx: model?.mlx ?? "",
    backend: model === null ? "" : model.backend.startsWith("metal") ? "metal" : "cpu",
  };
  const lines = [
    ...Object.values(telemetry.counters).flatMap((family) => family.lines()),
    ...Object.values(telemetry.histograms).flatMap((family) => family.lines()),
    ...(engine === null ? [] : grammarLines(engine.grammars)),
    ...line(
      "position_acceptance",
      "Share of drafts accepted at a position of a round",
      labels === null
        ? []
        : rounds.position_acceptance.map((share, position) => [{ ...labels, position: String(position) }, share]),
    ),
    ...line("accept_length", "Tokens committed a round", ofModel(rounds.rounds > 0 ? rounds.mean_accept_len : null)),
    ...line("draft_cap", "Drafts a round at most", ofModel(telemetry.cap.cap)),
    ...line("running_requests", "Rows that the engine computes", plain(queue.running)),
    ...line("waiting_requests", "Rows that wait for the engine", plain(queue.waiting)),
    ...line("batch_slots", "Rows computed at once at most", plain(options.maxBatch)),
    ...line("memory_active_bytes", "Bytes in live arrays", plain(engine?.mlxActiveBytes ?? null)),
    ...line("memory_peak_bytes", "Most bytes that were in live arrays", plain(engine?.mlxPeakBytes ?? null)),
    ...line("memory_cache_bytes", "Freed bytes kept for reuse", plain(engine?.mlxCacheBytes ?? null)),
    ...line("swap_used_bytes", "Swap in use on this machine", plain(memory.swapUsedBytes)),
    ...line("memory_pressure", "0 normal, 1 warning, 2 critical", plain(PRESSURE[memory.pressure])),
    ...line("bandwidth_gb_per_second", "Memory bandwidth, 1e9 bytes a second", plain(facts.bandwidth(model).gbS)),
    ...line("decode_ceiling_tokens_per_second", "Plain decoding of one stream at most", plain(ceiling)),
    ...line("model_loaded", "1 while a model answers", plain(model === null ? 0 : 1)),
    ...line("build_info", "What this program is made of", [[build, 1]]),
  ];
  return `${lines.join("\n")}\n`;
}

/** structured-output.md §7; the engine thread counts, over all models. */
function grammarLines({ compileSeconds, maskSeconds, restarts, cacheHits }: EngineStats["grammars"]): string[] {
  return [
    ...countedHistogram(`${PREFIX}grammar_compile_seconds`, "Compiling a grammar", compileSeconds),
    ...countedHistogram(`${PREFIX}grammar_mask_seconds`, "Waiting for the masks of a row's round", maskSeconds),
    ...countedTotal(`${PREFIX}grammar_restarts_total`, "Grammar workers that were lost and started anew", restarts),
    ...countedTotal(`${PREFIX}grammar_cache_hits_total`, "Requests whose grammar was compiled before", cacheHits),
  ];
}
