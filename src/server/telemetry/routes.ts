/** The routes that tell what the server does and what the machine is (admin-metrics.md §2–§5). They never wait for a row. */
import { Elysia } from "elysia";
import type { EngineStatus } from "../../engine/client.ts";
import type { EngineCounters } from "../engine-counters.ts";
import { invalidRequest } from "../errors.ts";
import type { GenerationService } from "../generation/service.ts";
import { isLoopbackAddress } from "../http/origin.ts";
import { sseResponse } from "../http/sse-response.ts";
import type { ServerOptions } from "../options.ts";
import { batchMsOf, writeEvents } from "./events.ts";
import type { MachineFacts } from "./facts.ts";
import { calibrationBody, machineBody } from "./machine-body.ts";
import { metricsBody } from "./metrics-body.ts";
import { PROMETHEUS_TYPE, prometheusText, wantsPrometheus } from "./prometheus.ts";

export interface TelemetryParts {
  readonly service: GenerationService;
  readonly facts: MachineFacts;
  readonly counters: EngineCounters;
  readonly status: () => EngineStatus;
  readonly options: ServerOptions;
  /** The examination of `mlx-dspark doctor`; absent: this server cannot make it. */
  readonly doctor?: (() => Promise<object>) | undefined;
}

const ROUNDS_DEFAULT = 128;

/** Paths, for the methods that they do not have. */
export const TELEMETRY_PATHS = ["/metrics", "/machine", "/doctor", "/calibration", "/rounds", "/events"] as const;

export function telemetryRoutes({ service, facts, counters, status, options, doctor }: TelemetryParts) {
  const { telemetry } = service;
  const detail = (summary: string) => ({ detail: { tags: ["Telemetry"], summary } });
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
      detail("Counters, as JSON or for Prometheus"),
    )
    .get("/machine", async () => machineBody(await input()), detail("Chip, memory, roofline"))
    .get(
      "/doctor",
      async ({ request, server }) => {
        const report = (await doctor?.()) ?? { ok: true, problems: [] };
        const shown = options.apiKey !== null || isLoopbackAddress(server?.requestIP(request)?.address);
        return shown ? report : { ...report, model_dirs: null };
      },
      detail("Examination of this machine"),
    )
    .get("/calibration", () => calibrationBody(service.loaded().model), detail("What drafts cost here"))
    .get(
      "/rounds",
      ({ request }) => {
        service.loaded();
        return { rounds: telemetry.rounds.last(limitOf(request.url)), stats: telemetry.rounds.stats() };
      },
      detail("The last decode rounds"),
    )
    .get(
      "/events",
      ({ request, server }) => {
        service.loaded();
        const batchMs = batchMsOf(request.url);
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
      detail("Rounds, progress and requests as they happen"),
    );
}

function limitOf(url: string): number {
  const text = new URL(url).searchParams.get("limit");
  if (text === null) return ROUNDS_DEFAULT;
  if (!/^\d{1,9}$/.test(text)) throw invalidRequest("limit", "'limit' must be a non-negative integer");
  return Number(text);
}
