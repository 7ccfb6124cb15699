/**
 * The Messages routes, each with and without `/v1`. A handler only connects the parts: body → internal form → service →
 * events → wire.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import { Elysia } from "elysia";
import { hexId } from "../dialect/fresh-id.ts";
import {
  type DialectCall,
  type DialectParts,
  generationHeaders,
  jsonParser,
  priorityOf,
  respond,
} from "../dialect/respond.ts";
import { operation } from "../openapi/operation.ts";
import { count } from "../openapi/schemas.ts";
import { messageAnswer, messageSchema } from "./answer.ts";
import { errorBodySchema } from "./envelope.ts";
import { MessageFrames, messageEventSchema } from "./frames.ts";
import { type MessagesRequest, messagesRequest } from "./request.ts";
import { messagesBodySchema } from "./schema.ts";
import type { TokenCounts } from "./token-counts.ts";

export interface AnthropicParts extends DialectParts {
  readonly counts: TokenCounts;
}

const tokenCountSchema = t.Object({ input_tokens: count }, { $id: "TokenCount" });

/** Routes under `prefix` (`/v1` or nothing). */
export function anthropicRoutes(parts: AnthropicParts, prefix: "" | "/v1") {
  const { options, counts } = parts;
  const described = { tag: "Anthropic", hide: prefix === "", error: errorBodySchema } as const;
  return new Elysia({ prefix })
    .post(
      "/messages",
      ({ body, request, server, set }) => {
        set.headers["request-id"] = hexId("req_");
        const call = dialectCall(messagesRequest(body, priorityOf(request), options), options);
        return respond(call, { request, server, set }, parts);
      },
      {
        body: messagesBodySchema,
        parse: jsonParser(messagesBodySchema, options),
        detail: operation({
          ...{ ...described, summary: "Message", headers: generationHeaders },
          ...{ json: messageSchema, events: messageEventSchema },
        }),
      },
    )
    .post(
      "/messages/count_tokens",
      async ({ body, request, server, set }): Promise<Static<typeof tokenCountSchema>> => {
        set.headers["request-id"] = hexId("req_");
        server?.timeout(request, 0);
        const { generation } = messagesRequest(body, priorityOf(request), options);
        return { input_tokens: await counts.count(generation, request.signal) };
      },
      {
        body: messagesBodySchema,
        parse: jsonParser(messagesBodySchema, options),
        detail: operation({
          ...{ ...described, summary: "Length of a message's prompt in tokens", json: tokenCountSchema },
        }),
      },
    );
}

function dialectCall({ generation, delivery }: MessagesRequest, options: DialectParts["options"]): DialectCall {
  return {
    generation,
    stream: delivery.stream,
    wire: ({ job }) => {
      const context = { id: hexId("msg_").slice(0, "msg_".length + 24), job, delivery, options };
      return { whole: (results) => messageAnswer(context, results), frames: () => new MessageFrames(context) };
    },
  };
}
