/** Anthropic's error envelope (http-anthropic.md §6), as a body and as a frame of a stream whose headers are out. */
import type { ErrorType, RequestError } from "../errors.ts";
import { eventFrame, type SseFrame } from "../http/sse.ts";

/** Types of http-anthropic.md §6; those that exist here only are told as the nearest of them. */
const TYPES: Readonly<Record<ErrorType, string>> = {
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

export function errorBody(error: RequestError, requestId: string) {
  return { ...errorEvent(error), request_id: requestId };
}

/** The stream ends after this frame, without `message_stop`. */
export function errorFrame(error: RequestError): SseFrame {
  return eventFrame("error", errorEvent(error));
}

function errorEvent(error: RequestError) {
  return { type: "error", error: { type: TYPES[error.type], message: error.message } };
}
