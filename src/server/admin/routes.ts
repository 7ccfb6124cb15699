/** The admin routes (admin-metrics.md §6, §7). Pages of foreign origins never get here: see `http/origin.ts`. */
import { type Static, type TSchema, Type as t } from "@sinclair/typebox";
import { Elysia } from "elysia";
import { EngineError } from "../../engine/client.ts";
import { jsonParser } from "../dialect/respond.ts";
import { RequestError, toRequestError, withoutPaths } from "../errors.ts";
import type { ReplyDefaults } from "../generation/chat-prompt.ts";
import type { GenerationService } from "../generation/service.ts";
import { isLoopbackAddress } from "../http/origin.ts";
import { operation } from "../openapi/operation.ts";
import type { ServerOptions } from "../options.ts";
import type { DoctorBody } from "../telemetry/doctor-body.ts";
import type { MachineFacts } from "../telemetry/facts.ts";
import { baseUrlOf, integrationsBody, integrationsSchema } from "./integrations.ts";
import { type LoadDefaults, loadBodySchema, loadRequest, type StickySettings } from "./load-request.ts";
import type { ModelSlot } from "./model-slot.ts";
import { type Catalogue, modelsBody, modelsSchema } from "./models-body.ts";
import { statusBody, statusSchema } from "./status-body.ts";

/** What a server that can change its model is given. */
export interface AdminSetup {
  readonly slot: ModelSlot;
  readonly defaults: LoadDefaults;
  readonly catalogue: () => Promise<Catalogue>;
  readonly doctor?: () => Promise<DoctorBody>;
}

export interface AdminParts extends AdminSetup {
  readonly service: GenerationService;
  readonly facts: MachineFacts;
  readonly options: ServerOptions;
  /** Called when a load has changed them. */
  readonly setReplyDefaults: (defaults: Pick<ReplyDefaults, "thinking" | "reasoningEffort">) => void;
}

/** Paths by method, for the methods that they do not have. */
export const ADMIN_GET_PATHS = ["/admin/status", "/admin/models", "/admin/integrations"] as const;
export const ADMIN_POST_PATHS = ["/admin/load", "/admin/load/cancel", "/admin/unload"] as const;

const flag = () => t.Optional(t.Boolean({ "x-must-be": "a boolean (true or false)" }));
const cancelSchema = t.Object({ cleanup: flag() }, { additionalProperties: true });
const unloadSchema = t.Object({ force: flag() }, { additionalProperties: true });

const cancelledSchema = t.Union(
  [
    t.Object({ cancelled: t.Literal(true), repo: t.String(), cleanup: t.Boolean() }),
    t.Object({ cancelled: t.Literal(false), reason: t.String() }),
  ],
  { $id: "LoadCancelled" },
);

export function adminRoutes(parts: AdminParts) {
  const { slot, service, options, facts, catalogue } = parts;
  let sticky: StickySettings = {
    contextWindow: parts.defaults.spec.contextWindow,
    thinking: options.thinking,
    effort: options.reasoningEffort,
  };
  const detail = (summary: string, json: TSchema) => operation({ tag: "Admin", summary, json });
  return new Elysia()
    .get("/admin/status", () => statusBody(slot.status), { detail: detail("How far a load is", statusSchema) })
    .get(
      "/admin/models",
      async ({ request, server }): Promise<Static<typeof modelsSchema>> => {
        const known = await catalogue();
        const { status } = slot;
        const body = modelsBody(known, status.state === "ready" ? status.model : null, facts);
        const shown = options.apiKey !== null || isLoopbackAddress(server?.requestIP(request)?.address);
        return shown
          ? body
          : { ...body, model_dirs: [], installed: body.installed.map((row) => ({ ...row, path: null })) };
      },
      { detail: detail("What there is to load", modelsSchema) },
    )
    .get(
      "/admin/integrations",
      ({ request }) => {
        const { model } = service.loaded();
        return integrationsBody({
          served: {
            url: baseUrlOf(request.headers.get("host")),
            ...{ model: model.id, mode: model.mode, backend: model.backend.startsWith("metal") ? "metal" : "cpu" },
            contextWindow: model.contextWindow,
            maxOutputTokens: Math.min(options.maxTokensCap, model.contextWindow),
          },
          key: options.apiKey,
        });
      },
      { detail: detail("Configurations of clients for this server", integrationsSchema) },
    )
    .post(
      "/admin/load",
      async ({ body, request, server }) => {
        const asked = loadRequest(body, parts.defaults, sticky);
        // Minutes, and more while something is downloaded.
        server?.timeout(request, 0);
        try {
          await slot.load(asked.wish);
        } catch (error) {
          throw loadFailure(error, asked.wish.spec.model);
        }
        sticky = asked.sticky;
        parts.setReplyDefaults({ thinking: sticky.thinking, reasoningEffort: sticky.effort });
        return statusBody(slot.status);
      },
      {
        body: loadBodySchema,
        parse: jsonParser(loadBodySchema, options),
        detail: detail("Load a model", statusSchema),
      },
    )
    .post(
      "/admin/load/cancel",
      ({ body }): Static<typeof cancelledSchema> => {
        const cleanup = body.cleanup ?? false;
        const repo = slot.cancel(cleanup);
        return repo === null
          ? { cancelled: false, reason: "no download in progress" }
          : { cancelled: true, repo: withoutPaths(repo), cleanup };
      },
      {
        body: cancelSchema,
        parse: jsonParser(cancelSchema, options, { empty: true }),
        detail: detail("Give up the load under way", cancelledSchema),
      },
    )
    .post(
      "/admin/unload",
      async ({ body, request, server }) => {
        server?.timeout(request, 0);
        await slot.unload(body.force ?? false);
        return statusBody(slot.status);
      },
      {
        body: unloadSchema,
        parse: jsonParser(unloadSchema, options, { empty: true }),
        detail: detail("Free the model", statusSchema),
      },
    );
}

/** What was asked wrongly is a 400; what could not be done is a 500 that says why. */
function loadFailure(error: unknown, model: string): RequestError {
  if (!(error instanceof EngineError) || error.kind !== "load") return toRequestError(error);
  const message = `could not load '${withoutPaths(model)}': ${withoutPaths(error.message)}`;
  return new RequestError({ status: 500, type: "api_error", message }, { cause: error });
}
