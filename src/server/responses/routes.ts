/** The Responses routes, each with and without `/v1`. Nothing is stored, so no response can be asked for again. */
import { Elysia } from "elysia";
import {
  type DialectCall,
  type DialectParts,
  generationHeaders,
  jsonParser,
  priorityOf,
  respond,
} from "../dialect/respond.ts";
import { RequestError } from "../errors.ts";
import { operation } from "../openapi/operation.ts";
import { responseContext, responseSchema, wholeResponse } from "./body.ts";
import { type ResponseRequest, responseBodySchema, responseRequest } from "./request.ts";
import { ResponseStream, responseEventSchema } from "./stream.ts";

/** Routes under `prefix` (`/v1` or nothing). */
export function responsesRoutes(parts: DialectParts, prefix: "" | "/v1") {
  const { options } = parts;
  return new Elysia({ prefix })
    .post(
      "/responses",
      ({ body, request, server, set }) =>
        respond(dialectCall(responseRequest(body, priorityOf(request), options)), { request, server, set }, parts),
      {
        body: responseBodySchema,
        parse: jsonParser(responseBodySchema, options),
        detail: operation({
          ...{ tag: "OpenAI", summary: "Response", hide: prefix === "", headers: generationHeaders },
          ...{ json: responseSchema, events: responseEventSchema },
        }),
      },
    )
    .get("/responses/:id", nothingStored, HIDDEN)
    .delete("/responses/:id", nothingStored, HIDDEN)
    .post("/responses/:id/cancel", nothingStored, HIDDEN)
    .get("/responses/:id/input_items", nothingStored, HIDDEN);
}

const HIDDEN = { detail: { hide: true } };

function nothingStored(): never {
  const message = "no such response: this server is stateless and stores none";
  throw new RequestError({ status: 404, type: "not_found", code: "not_found", message });
}

function dialectCall({ generation, stream, echo }: ResponseRequest): DialectCall {
  return {
    generation,
    stream,
    wire: ({ job }) => {
      const context = responseContext(job, echo);
      return { whole: (results) => wholeResponse(context, results), frames: () => new ResponseStream(context) };
    },
  };
}
