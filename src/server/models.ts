/** `GET /v1/models`: the loaded model, in a form that OpenAI's and Anthropic's clients both read (http-openai.md §8). */
import { basename } from "node:path";
import { type Static, Type as t } from "@sinclair/typebox";
import { Elysia } from "elysia";
import type { EngineClient } from "../engine/client.ts";
import type { ModelInfo } from "../engine/protocol.ts";
import { RequestError } from "./errors.ts";
import { isLoopbackAddress } from "./http/origin.ts";
import { operation } from "./openapi/operation.ts";
import { modeSchema, orNull } from "./openapi/schemas.ts";
import type { ServerOptions } from "./options.ts";

const entrySchema = t.Object(
  {
    id: t.String(),
    object: t.Literal("model"),
    created: t.Integer({ description: "Unix seconds of the load." }),
    owned_by: t.Literal("mlx-dspark"),
    display_name: t.String(),
    type: t.Literal("model"),
    created_at: t.String({ description: "ISO 8601." }),
    context_length: t.Integer(),
    max_output_tokens: t.Integer(),
    x_mlx_dspark: t.Object({
      mode: modeSchema,
      target: t.String({ description: "The folder; for clients on other machines its last part." }),
      drafter: orNull(t.String()),
    }),
  },
  { $id: "Model" },
);

const listSchema = t.Object(
  {
    object: t.Literal("list"),
    data: t.Array(entrySchema, { description: "Empty while no model is loaded." }),
    has_more: t.Literal(false),
    first_id: orNull(t.String()),
    last_id: orNull(t.String()),
  },
  { $id: "ModelList" },
);

const byId = t.Object({ id: t.String({ description: "As /v1/models tells it." }) });

type Entry = Static<typeof entrySchema>;

export interface ModelListing {
  readonly model: ModelInfo;
  /** Unix milliseconds of the load. */
  readonly loadedAt: number;
}

/** @param showPaths true for a client on this machine: then `target` is the folder, else only its last part. */
export function modelEntry({ model, loadedAt }: ModelListing, options: ServerOptions, showPaths: boolean): Entry {
  return {
    id: model.id,
    object: "model",
    created: Math.floor(loadedAt / 1000),
    owned_by: "mlx-dspark",
    display_name: `${model.id} (mlx-dspark ${model.mode})`,
    type: "model",
    created_at: new Date(loadedAt).toISOString(),
    context_length: model.contextWindow,
    max_output_tokens: Math.min(options.maxTokensCap, model.contextWindow),
    x_mlx_dspark: { mode: model.mode, target: showPaths ? model.dir : basename(model.dir), drafter: model.drafter },
  };
}

/** The list; empty while no model is loaded. */
export function modelList(
  listing: ModelListing | null,
  options: ServerOptions,
  showPaths: boolean,
): Static<typeof listSchema> {
  const data = listing === null ? [] : [modelEntry(listing, options, showPaths)];
  const id = data[0]?.id ?? null;
  return { object: "list", data, has_more: false, first_id: id, last_id: id };
}

/** One entry by its id; throws 404. */
export function modelById(id: string, listing: ModelListing | null, options: ServerOptions, showPaths: boolean): Entry {
  if (listing === null || listing.model.id !== id) {
    throw new RequestError({ status: 404, type: "not_found", code: "not_found", message: "no such model is loaded" });
  }
  return modelEntry(listing, options, showPaths);
}

/** Both routes under `prefix` (`/v1` or nothing). */
export function modelRoutes(engine: EngineClient, options: ServerOptions, prefix: "" | "/v1") {
  const listing = loadedModelListing(engine);
  const described = { tag: "OpenAI", hide: prefix === "" } as const;
  return new Elysia({ prefix })
    .get(
      "/models",
      ({ request, server }) => modelList(listing(), options, isLoopbackAddress(server?.requestIP(request)?.address)),
      { detail: operation({ ...described, summary: "The loaded model", json: listSchema }) },
    )
    .get(
      "/models/:id",
      ({ params, request, server }) =>
        modelById(params.id, listing(), options, isLoopbackAddress(server?.requestIP(request)?.address)),
      { params: byId, detail: operation({ ...described, summary: "The loaded model, by its id", json: entrySchema }) },
    );
}

/** The loaded model with the time at which it was first seen. */
function loadedModelListing(engine: EngineClient): () => ModelListing | null {
  const seen = new WeakMap<ModelInfo, number>();
  return () => {
    const { status } = engine;
    if (status.state !== "ready") return null;
    const loadedAt = seen.get(status.model) ?? Date.now();
    seen.set(status.model, loadedAt);
    return { model: status.model, loadedAt };
  };
}
