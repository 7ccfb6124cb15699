/** Anthropic's error envelope (http-anthropic.md §6), as a body and as a frame of a stream whose headers are out. */
import { type Static, Type as t } from "@sinclair/typebox";
import type { ErrorType, RequestError } from "../errors.ts";
import { eventFrame, type SseFrame } from "../http/sse.ts";
import { oneOf } from "../openapi/schemas.ts";

const fields = {
  type: t.Literal("error"),
  error: t.Object({
    type: oneOf(
      "invalid_request_error",
      "authentication_error",
      "permission_error",
      "not_found_error",
      "request_too_large",
      "rate_limit_error",
      "api_error",
    ),
    message: t.String(),
  }),
};

/** The last event of a stream that could not be finished. */
export const errorEventSchema = t.Object(fields, { $id: "MessagesErrorEvent" });
export const errorBodySchema = t.Object({ ...fields, request_id: t.String() }, { $id: "MessagesError" });

type ErrorEvent = Static<typeof errorEventSchema>;

/** Types of http-anthropic.md §6; those that exist here only are told as the nearest of them. */
const TYPES: Readonly<Record<ErrorType, ErrorEvent["error"]["type"]>> = {
  invalid_request_error: "invalid_request_error",
  authentication_error: "authentication_error",
  permission_error: "permission_error",
  not_found: "not_found_error",
  request_too_large: "request_too_large",
  rate_limit_error: "rate_limit_error",
  api_error: "api_error",
  server_error: "api_error",
  service_unavailable: "api_error",
  client_closed: "api_error",
};

export function errorBody(error: RequestError, requestId: string): Static<typeof errorBodySchema> {
  return { ...errorEvent(error), request_id: requestId };
}

/** The stream ends after this frame, without `message_stop`. */
export function errorFrame(error: RequestError): SseFrame {
  return eventFrame("error", errorEvent(error));
}

function errorEvent(error: RequestError): ErrorEvent {
  return { type: "error", error: { type: TYPES[error.type], message: error.message } };
}
