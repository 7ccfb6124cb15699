/**
 * The Elysia app: what holds for every request (Host, CORS, HEAD, OPTIONS, key), the routes, and the one place where
 * errors become replies. Which requests exist is in the dialects' own files.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import { Elysia, ValidationError } from "elysia";
import type { EngineClient } from "../engine/client.ts";
import { ADMIN_GET_PATHS, ADMIN_POST_PATHS, type AdminSetup, adminRoutes } from "./admin/routes.ts";
import { anthropicRoutes } from "./anthropic/routes.ts";
import { TokenCounts } from "./anthropic/token-counts.ts";
import { errorReply } from "./dialect/envelopes.ts";
import { EngineCounters } from "./engine-counters.ts";
import { invalidRequest, RequestError, toRequestError } from "./errors.ts";
import type { ReplyDefaults } from "./generation/chat-prompt.ts";
import { GenerationService } from "./generation/service.ts";
import type { TextSource } from "./generation/text.ts";
import { healthBody, healthSchema } from "./health.ts";
import { checkApiKey } from "./http/auth.ts";
import { checkHeaders } from "./http/headers.ts";
import { onlyMethod } from "./http/methods.ts";
import { checkAdminOrigin, checkHost, corsHeaders } from "./http/origin.ts";
import { modelRoutes } from "./models.ts";
import { openAiRoutes } from "./openai/routes.ts";
import { openApiDocument } from "./openapi/document.ts";
import { operation } from "./openapi/operation.ts";
import { OPENAPI_PAGE } from "./openapi/page.ts";
import type { ServerOptions } from "./options.ts";
import { responsesRoutes } from "./responses/routes.ts";
import { MachineFacts } from "./telemetry/facts.ts";
import { TELEMETRY_PATHS, telemetryRoutes } from "./telemetry/routes.ts";

export interface AppParts {
  readonly engine: EngineClient;
  /** Text side of the loaded model; null until it is read. */
  readonly text: () => TextSource | null;
  readonly options: ServerOptions;
  /** One line for the server's log: causes that clients do not see. */
  readonly log?: (line: string) => void;
  /** Given by `startServer`, which closes it; made here for an app of its own. */
  readonly service?: GenerationService;
  /** What loads and unloads models; absent: the model is there for good. */
  readonly admin?: AdminSetup | undefined;
}

/** Paths that exist under both `/v1` and the root, with the methods that they answer. */
const PREFIXES = ["/v1", ""] as const;

const rootSchema = t.Object(
  { name: t.Literal("mlx-dspark"), version: t.String(), docs: t.Literal("/openapi") },
  { $id: "Root" },
);

export function createApp(parts: AppParts) {
  const { engine, options } = parts;
  const log = parts.log ?? (() => undefined);
  const service = parts.service ?? new GenerationService({ ...parts, gate: parts.admin?.slot.gate });
  const status = () => parts.admin?.slot.status ?? engine.status;
  const { telemetry } = service;
  const facts = new MachineFacts();
  const counters = new EngineCounters(engine);
  const startedAt = performance.now();
  const counts = new TokenCounts(service);
  const logError = (error: RequestError) => logCause(error, log);

  const app = new Elysia({
    // Every request takes the same way, through `onRequest`; the router of the socket layer would skip it.
    systemRouter: false,
    // Unknown body fields are ignored, not cut out: what is passed on arrives as it was sent.
    normalize: false,
    // Host names shorter than four characters are names too.
    handler: { standardHostname: false },
  })
    .onRequest(({ request, server, set }) => {
      set.headers.server = `mlx-dspark/${options.version}`;
      Object.assign(set.headers, corsHeaders(request, options));
      checkHost(request, options);
      if (isAdmin(request)) checkAdminOrigin(request, options);
      checkHeaders(request.headers, options.limits.headerBytes);
      if ((server?.pendingRequests ?? 0) > options.limits.requests) throw tooManyRequests();
      if (request.method === "OPTIONS") return new Response(null, { status: 204 });
      if (request.method === "HEAD") return new Response(null, { status: 200, headers: { "content-length": "0" } });
      if (options.apiKey !== null && !isOpen(request)) checkApiKey(request, options.apiKey);
    })
    .onError(({ code, error, path, request, set }) => {
      const reply = code === "NOT_FOUND" ? unknownRoute(path, request) : asRequestError(error);
      logError(reply);
      const { body, headers } = errorReply(reply, URL.parse(request.url)?.pathname ?? "");
      Object.assign(set.headers, headers);
      set.status = reply.status;
      return Response.json(body, { status: reply.status });
    })
    .onAfterResponse(({ route, responseValue, set }) => {
      const status = responseValue instanceof Response ? responseValue.status : (set.status ?? 200);
      // The pattern of the route, never the path: a client must not make series of its own.
      telemetry.counters.http.of({ route: route ?? "unknown", status: String(status) }).value += 1;
    })
    .get("/openapi", () => new Response(OPENAPI_PAGE, { headers: { "content-type": "text/html; charset=utf-8" } }), {
      detail: { hide: true },
    })
    .get("/openapi/json", () => openApi(), { detail: { hide: true } })
    .get("/", (): Static<typeof rootSchema> => ({ name: "mlx-dspark", version: options.version, docs: "/openapi" }), {
      detail: operation({ tag: "Server", summary: "Who answers here", json: rootSchema }),
    })
    .get(
      "/health",
      async () =>
        healthBody({
          status: status(),
          text: parts.text(),
          counters: await counters.read(),
          queue: service.queue(),
          options,
          wish: parts.admin?.slot.loaded ?? null,
          memory: facts.memory(),
          uptimeSeconds: (performance.now() - startedAt) / 1000,
        }),
      { detail: operation({ tag: "Server", summary: "Readiness and configuration", json: healthSchema }) },
    );
  // Made once, and only when somebody wants it: all routes are there then.
  let document: object | null = null;
  function openApi(): object {
    document ??= openApiDocument(app.routes, options.version);
    return document;
  }

  for (const prefix of PREFIXES) {
    app
      .use(openAiRoutes({ service, options, onError: logError }, prefix))
      .use(responsesRoutes({ service, options, onError: logError }, prefix))
      .use(anthropicRoutes({ service, options, counts, onError: logError }, prefix))
      .use(modelRoutes(engine, options, prefix))
      .use(onlyMethod("POST", [`${prefix}/chat/completions`, `${prefix}/completions`, `${prefix}/responses`]))
      .use(onlyMethod("POST", [`${prefix}/messages`, `${prefix}/messages/count_tokens`]))
      .use(onlyMethod("GET", [`${prefix}/models`, `${prefix}/models/:id`]));
  }
  app
    .use(telemetryRoutes({ service, facts, counters, status, options, doctor: parts.admin?.doctor }))
    .use(onlyMethod("GET", TELEMETRY_PATHS))
    .use(onlyMethod("GET", ["/", "/health", "/openapi", "/openapi/json"]));
  if (parts.admin !== undefined) {
    const setReplyDefaults = (defaults: Pick<ReplyDefaults, "thinking" | "reasoningEffort">) => {
      options.thinking = defaults.thinking;
      options.reasoningEffort = defaults.reasoningEffort;
    };
    app
      .use(adminRoutes({ ...parts.admin, service, facts, options, setReplyDefaults }))
      .use(onlyMethod("GET", ADMIN_GET_PATHS))
      .use(onlyMethod("POST", ADMIN_POST_PATHS));
  }
  return app;
}

function unknownRoute(path: string, request: Request): RequestError {
  // Elysia also says "not found" when a URL has no path that it can read.
  const shown = path === "" ? new URL(request.url).pathname : path;
  const message = `unknown route ${shown.slice(0, 200)}`;
  return new RequestError({ status: 404, type: "not_found", code: "not_found", message });
}

/** Whatever Elysia caught, as the layer's own error; a parse error wraps the one that `readJsonObject` threw. */
function asRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error;
  if (error instanceof ValidationError) return invalidRequest(null, "the request does not have the expected shape");
  if (error instanceof Error && error.cause instanceof RequestError) return error.cause;
  if (error instanceof Error && error.name === "ParseError") {
    return invalidRequest(null, "the request body could not be read");
  }
  return toRequestError(error);
}

function isAdmin(request: Request): boolean {
  return /^\/+admin(?:\/|$)/i.test(URL.parse(request.url)?.pathname ?? "");
}

/** Beside the queue of generations: streams, loads and idle waits count here, too. */
function tooManyRequests(): RequestError {
  return new RequestError({
    status: 503,
    type: "service_unavailable",
    message: "too many requests at once; try again in a moment",
    headers: { "Retry-After": "1" },
  });
}

function isOpen(request: Request): boolean {
  const path = new URL(request.url).pathname.replace(/\/$/, "");
  return request.method === "GET" && path === "/health";
}

function logCause(error: RequestError, log: (line: string) => void): void {
  if (error.type !== "server_error") return;
  const cause = error.cause;
  log(`${error.message}${cause instanceof Error ? `: ${cause.stack ?? cause.message}` : ""}`);
}
