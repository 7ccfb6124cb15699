/** What `/openapi` tells of one route, from the schemas of its answers and of its query. */
import { type TObject, type TSchema, Type as t } from "@sinclair/typebox";
import { errorBodySchema } from "../openai/envelope.ts";

export interface Described {
  readonly tag: "OpenAI" | "Anthropic" | "Telemetry" | "Admin" | "Server";
  readonly summary: string;
  /** The same route is listed under another path. */
  readonly hide?: boolean;
  readonly query?: TObject;
  /** Request headers that change the answer. */
  readonly headers?: TObject;
  /** Of an answer in one piece. */
  readonly json?: TSchema;
  /** Of each object of an answer that is a stream of events. */
  readonly events?: TSchema;
  /** What an answer that is plain text holds. */
  readonly text?: string;
  /** Of a refusal; absent: OpenAI's. */
  readonly error?: TSchema;
}

/** The `detail` of a route. */
export function operation(described: Described) {
  const { tag, summary, hide = false, query, headers, json, events, text, error = errorBodySchema } = described;
  const refusal = { "application/json": { schema: error } };
  return {
    tags: [tag],
    summary,
    hide,
    parameters: [...parameters("query", query), ...parameters("header", headers)],
    responses: {
      200: {
        description: "The answer",
        content: {
          ...(json !== undefined && { "application/json": { schema: json } }),
          ...(events !== undefined && { "text/event-stream": { schema: events } }),
          ...(text !== undefined && { "text/plain": { schema: t.String({ description: text }) } }),
        },
      },
      "4XX": { description: "What the client asked for cannot be had, or not in this way", content: refusal },
      "5XX": { description: "The server cannot answer; 503 with Retry-After: not yet", content: refusal },
    },
  };
}

export interface Parameter {
  readonly name: string;
  readonly in: "query" | "header" | "path";
  readonly required: boolean;
  readonly schema: TSchema;
}

/** Each property of `schema` as a parameter. */
export function parameters(place: Parameter["in"], schema: TObject | undefined): Parameter[] {
  return Object.entries(schema?.properties ?? {}).map(([name, property]) => ({
    name,
    in: place,
    required: schema?.required?.includes(name) ?? false,
    schema: property,
  }));
}
