/**
 * The OpenAPI document, made from the routes themselves: their bodies, parameters and answers are the very schemas that
 * validate requests and type replies. A schema with a `$id` is told once, among the components.
 */
import type { TObject, TSchema } from "@sinclair/typebox";
import { type Parameter, parameters } from "./operation.ts";

/** The part of Elysia's routes that is read here. */
export interface Route {
  readonly method: string;
  readonly path: string;
  readonly hooks: {
    readonly body?: TSchema;
    readonly params?: TObject;
    readonly detail?: Detail;
  };
}

interface Detail {
  readonly hide?: boolean;
  readonly tags?: readonly string[];
  readonly summary?: string;
  readonly parameters?: readonly Parameter[];
  readonly responses?: object;
}

export function openApiDocument(routes: readonly Route[], version: string): object {
  const shown = routes.filter(({ hooks }) => hooks.detail?.hide !== true);
  const paths: Record<string, Record<string, object>> = {};
  for (const route of shown) {
    const path = route.path.replace(/:(\w+)/g, "{$1}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(route) };
  }
  const schemas: Record<string, object> = {};
  const hoisted = hoist(paths, schemas);
  return {
    openapi: "3.1.2",
    info: { title: "mlx-dspark", description: "Language models on this machine", version },
    paths: hoisted,
    components: { schemas },
  };
}

function operationOf({ method, path, hooks: { body, params, detail = {} } }: Route): object {
  const given = [...parameters("path", params), ...(detail.parameters ?? [])];
  return {
    operationId: operationId(method, path),
    tags: detail.tags,
    summary: detail.summary,
    ...(given.length > 0 && { parameters: given }),
    ...(body !== undefined && { requestBody: { required: true, content: { "application/json": { schema: body } } } }),
    responses: detail.responses,
  };
}

/** `postV1ChatCompletions`, `getV1ModelsById`. */
function operationId(method: string, path: string): string {
  const words = path.split(/[/_]/).map((part) => part.replace(/^:/, "by"));
  return method.toLowerCase() + words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
}

/** A copy in which each schema with a `$id` is a reference to its place in `schemas`. */
function hoist(value: unknown, schemas: Record<string, object>): unknown {
  if (Array.isArray(value)) return value.map((item) => hoist(item, schemas));
  if (typeof value !== "object" || value === null) return value;
  const { $id, ...others } = tuple(value) as { readonly $id?: unknown };
  const copy = Object.fromEntries(Object.entries(others).map(([key, inner]) => [key, hoist(inner, schemas)]));
  if (typeof $id !== "string") return copy;
  const known = schemas[$id];
  if (known !== undefined && JSON.stringify(known) !== JSON.stringify(copy)) {
    throw new Error(`two schemas have the name ${$id}`);
  }
  schemas[$id] = copy;
  return { $ref: `#/components/schemas/${$id}` };
}

/** TypeBox has the tuples of an older draft of JSON schema than OpenAPI 3.1. */
function tuple(value: object): object {
  if (!("items" in value) || !Array.isArray(value.items)) return value;
  const { items, additionalItems: _none, ...others } = value as Record<string, unknown>;
  return { ...others, prefixItems: items, items: false };
}
