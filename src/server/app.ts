/**
 * The Elysia app: what holds for every request (Host, CORS, HEAD, OPTIONS, key), the routes, and the one place where
 * errors become replies. Which requests exist is in the dialects' own files.
 */
import { openapi } from "@elysiajs/openapi";
import { Elysia, ValidationError } from "elysia";
import type { EngineClient } from "../engine/client.ts";
import { anthropicRoutes } from "./anthropic/routes.ts";
import { TokenCounts } from "./anthropic/token-counts.ts";
import { errorReply } from "./dialect/envelopes.ts";
import { EngineCounters } from "./engine-counters.ts";
import { invalidRequest, RequestError, toRequestError } from "./errors.ts";
import { GenerationService } from "./generation/service.ts";
import type { TextSource } from "./generation/text.ts";
import { healthBody } from "./health.ts";
import { checkApiKey } from "./http/auth.ts";
import { onlyMethod } from "./http/methods.ts";
import { checkHost, corsHeaders } from "./http/origin.ts";
import { modelRoutes } from "./models.ts";
import { openAiRoutes } from "./openai/routes.ts";
import { OPENAPI_PAGE } from "./openapi-page.ts";
import type { ServerOptions } from "./options.ts";
import { responsesRoutes } from "./responses/routes.ts";

export interface AppParts {
  readonly engine: EngineClient;
  /** Text side of the loaded model; null until it is read. */
  readonly text: () => TextSource | null;
  readonly options: ServerOptions;
  /** One line for the server's log: causes that clients do not see. */
  readonly log?: (line: string) => void;
  /** Given by `startServer`, which closes it; made here for an app of its own. */
  readonly service?: GenerationService;
}

/** Paths that exist under both `/v1` and the root, with the methods that they answer. */
const PREFIXES = ["/v1", ""] as const;

export function createApp(parts: AppParts) {
  const { engine, options } = parts;
  const log = parts.log ?? (() => undefined);
  const service = parts.service ?? new GenerationService(parts);
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
    .onRequest(({ request, set }) => {
      set.headers.server = `mlx-dspark/${options.version}`;
      Object.assign(set.headers, corsHeaders(request, options));
      checkHost(request, options);
      if (request.method === "OPTIONS") return new Response(null, { status: 204 });
      if (request.method === "HEAD") return new Response(null, { status: 200, headers: { "content-length": "0" } });
      if (options.apiKey !== null && !isOpen(request)) checkApiKey(request, options.apiKey);
    })
    .onError(({ code, error, path, request, set }) => {
      const reply = code === "NOT_FOUND" ? unknownRoute(path, request) : asRequestError(error);
      logError(reply);
      const { body, headers } = errorReply(reply, URL.parse(request.url)?.pathname ?? "");
      Object.assign(set.headers, headers);
      return Response.json(body, { status: reply.status });
    })
    .use(
      openapi({
        path: "/openapi",
        provider: null,
        documentation: { info: { title: "mlx-dspark", version: options.version } },
      }),
    )
    .get("/openapi", () => new Response(OPENAPI_PAGE, { headers: { "content-type": "text/html; charset=utf-8" } }), {
      detail: { hide: true },
    })
    .get("/", () => ({ name: "mlx-dspark", version: options.version, docs: "/openapi" }), { detail: { hide: true } })
    .get(
      "/health",
      async () =>
        healthBody({
          status: engine.status,
          text: parts.text(),
          counters: await counters.read(),
          queue: service.queue(),
          options,
          uptimeSeconds: (performance.now() - startedAt) / 1000,
        }),
      { detail: { summary: "Readiness and configuration" } },
    );

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
  app.use(onlyMethod("GET", ["/", "/health", "/openapi", "/openapi/json"]));
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

function isOpen(request: Request): boolean {
  const path = new URL(request.url).pathname.replace(/\/$/, "");
  return request.method === "GET" && path === "/health";
}

function logCause(error: RequestError, log: (line: string) => void): void {
  if (error.type !== "server_error") return;
  const cause = error.cause;
  log(`${error.message}${cause instanceof Error ? `: ${cause.stack ?? cause.message}` : ""}`);
}
