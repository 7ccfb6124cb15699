/**
 * The Messages routes, each with and without `/v1`. A handler only connects the parts: body → internal form → service →
 * events → wire.
 */
import { Elysia } from "elysia";
import { hexId } from "../dialect/fresh-id.ts";
import { type DialectCall, type DialectParts, jsonParser, priorityOf, respond } from "../dialect/respond.ts";
import { messageAnswer } from "./answer.ts";
import { MessageFrames } from "./frames.ts";
import { type MessagesRequest, messagesRequest } from "./request.ts";
import { messagesBodySchema } from "./schema.ts";
import type { TokenCounts } from "./token-counts.ts";

export interface AnthropicParts extends DialectParts {
  readonly counts: TokenCounts;
}

/** Routes under `prefix` (`/v1` or nothing). */
export function anthropicRoutes(parts: AnthropicParts, prefix: "" | "/v1") {
  const { options, counts } = parts;
  const detail = { tags: ["Anthropic"], hide: prefix === "" };
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
        detail: { ...detail, summary: "Message" },
      },
    )
    .post(
      "/messages/count_tokens",
      async ({ body, request, server, set }) => {
        set.headers["request-id"] = hexId("req_");
        server?.timeout(request, 0);
        const { generation } = messagesRequest(body, priorityOf(request), options);
        return { input_tokens: await counts.count(generation, request.signal) };
      },
      {
        body: messagesBodySchema,
        parse: jsonParser(messagesBodySchema, options),
        detail: { ...detail, summary: "Length of a message's prompt in tokens" },
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
