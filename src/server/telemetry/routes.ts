/** The routes that tell what the server does and what the machine is (admin-metrics.md §2–§5). They never wait for a row. */
import { type Static, Type as t } from "@sinclair/typebox";
import { Elysia } from "elysia";
import type { EngineStatus } from "../../engine/client.ts";
import type { EngineCounters } from "../engine-counters.ts";
import type { GenerationService } from "../generation/service.ts";
import { isLoopbackAddress } from "../http/origin.ts";
import { queryReader } from "../http/query.ts";
import { sseResponse } from "../http/sse-response.ts";
import { type Described, operation } from "../openapi/operation.ts";
import type { ServerOptions } from "../options.ts";
import { type DoctorBody, doctorSchema } from "./doctor-body.ts";
import { eventSchema, eventsQuery, writeEvents } from "./events.ts";
import type { MachineFacts } from "./facts.ts";
import { calibrationBody, calibrationSchema, machineBody, machineSchema } from "./machine-body.ts";
import { metricsBody, metricsSchema } from "./metrics-body.ts";
import { metricsQuery, PROMETHEUS_TYPE, prometheusText, wantsPrometheus } from "./prometheus.ts";
import { roundSchema, roundStatsSchema } from "./round-log.ts";

export interface TelemetryParts {
  readonly service: GenerationService;
  readonly facts: MachineFacts;
  readonly counters: EngineCounters;
  readonly status: () => EngineStatus;
  readonly options: ServerOptions;
  /** The examination of `mlx-dspark doctor`; absent: this server cannot make it. */
  readonly doctor?: (() => Promise<DoctorBody>) | undefined;
}

const ROUNDS_DEFAULT = 128;

const roundsQuery = t.Object({
  limit: t.Optional(
    t.Integer({ minimum: 0, maximum: 999_999_999, default: ROUNDS_DEFAULT, "x-must-be": "a non-negative integer" }),
  ),
});
const roundsSchema = t.Object({ rounds: t.Array(roundSchema), stats: roundStatsSchema }, { $id: "Rounds" });

const roundsQueryOf = queryReader(roundsQuery);
const eventsQueryOf = queryReader(eventsQuery);

/** Paths, for the methods that they do not have. */
export const TELEMETRY_PATHS = ["/metrics", "/machine", "/doctor", "/calibration", "/rounds", "/events"] as const;

export function telemetryRoutes({ service, facts, counters, status, options, doctor }: TelemetryParts) {
  const { telemetry } = service;
  const described = (summary: string, answer: Omit<Described, "tag" | "summary">) => ({
    detail: operation({ tag: "Telemetry", summary, ...answer }),
  });
  const input = async () => {
    const engine = await counters.read();
    return { telemetry, facts, status: status(), engine, queue: service.queue(), options };
  };
  return new Elysia()
    .get(
      "/metrics",
      async ({ request }) => {
        const all = await input();
        if (!wantsPrometheus(request)) return metricsBody(all);
        return new Response(prometheusText(all), { headers: { "content-type": PROMETHEUS_TYPE } });
      },
      described("Counters, as JSON or for Prometheus", {
        ...{ query: metricsQuery, json: metricsSchema, text: "Prometheus' text format 0.0.4." },
      }),
    )
    .get(
      "/machine",
      async () => machineBody(await input()),
      described("Chip, memory, roofline", { json: machineSchema }),
    )
    .get(
      "/doctor",
      async ({ request, server }): Promise<DoctorBody> => {
        const report = (await doctor?.()) ?? { ok: true, problems: [] };
        const shown = options.apiKey !== null || isLoopbackAddress(server?.requestIP(request)?.address);
        return shown || !("model_dirs" in report) ? report : { ...report, model_dirs: null };
      },
      described("Examination of this machine", { json: doctorSchema }),
    )
    .get(
      "/calibration",
      () => calibrationBody(service.loaded().model),
      described("What drafts cost here", { json: calibrationSchema }),
    )
    .get(
      "/rounds",
      ({ request }): Static<typeof roundsSchema> => {
        service.loaded();
        const { limit = ROUNDS_DEFAULT } = roundsQueryOf(request.url);
        return { rounds: telemetry.rounds.last(limit), stats: telemetry.rounds.stats() };
      },
      described("The last decode rounds", { query: roundsQuery, json: roundsSchema }),
    )
    .get(
      "/events",
      ({ request, server }) => {
        service.loaded();
        const batchMs = eventsQueryOf(request.url).batch_ms ?? null;
        server?.timeout(request, 0);
        const { feed, rounds } = telemetry;
        const subscription = feed.subscribe();
        const produce = async (write: (text: string) => void) => {
          using own = subscription;
          await writeEvents(own, { feed, rounds, batchMs }, write);
        };
        return sseResponse(produce, {
          signal: request.signal,
          keepAliveMs: 0,
          keepAlive: () => "",
          stallMs: options.limits.stallMs,
          cut: () => server?.timeout(request, 1),
          gone: () => subscription[Symbol.dispose](),
        });
      },
      described("Rounds, progress and requests as they happen", { query: eventsQuery, events: eventSchema }),
    );
}
