/**
 * The one error of the server layer: what a client did wrong or could not get, with everything a dialect needs to
 * word it (status, type, code, param). It is thrown where the fact is known and turned into a reply in `app.ts` or,
 * once the headers of a stream are out, into a frame.
 */
import { EngineError } from "../engine/client.ts";

/** Error types of http-openai.md §7. `client_closed` is never read: nobody is there. */
export const ERROR_TYPES = [
  "invalid_request_error",
  "authentication_error",
  "permission_error",
  "not_found",
  "request_too_large",
  "rate_limit_error",
  "server_error",
  /** A model could not be loaded (admin-metrics.md §6). */
  "api_error",
  "service_unavailable",
  "client_closed",
] as const;

export type ErrorType = (typeof ERROR_TYPES)[number];

export interface RequestErrorFields {
  readonly status: number;
  readonly type: ErrorType;
  readonly message: string;
  readonly param?: string | null;
  readonly code?: string | null;
  /** Extra response headers, e.g. `Retry-After`. */
  readonly headers?: Readonly<Record<string, string>>;
}

export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly status: number;
  readonly type: ErrorType;
  readonly param: string | null;
  readonly code: string | null;
  readonly headers: Readonly<Record<string, string>>;
  constructor(fields: RequestErrorFields, options?: ErrorOptions) {
    super(fields.message, options);
    this.status = fields.status;
    this.type = fields.type;
    this.param = fields.param ?? null;
    this.code = fields.code ?? null;
    this.headers = fields.headers ?? {};
  }
}

/** 400 about one field (`param`), or about the body as a whole (null). */
export function invalidRequest(param: string | null, message: string, code: string | null = null): RequestError {
  return new RequestError({ status: 400, type: "invalid_request_error", message, param, code });
}

/** 503: loading, nothing loaded, or shutting down. Clients retry it by themselves. */
export function notReady(message: string): RequestError {
  return new RequestError({
    status: 503,
    type: "service_unavailable",
    code: "model_not_ready",
    message,
    headers: { "Retry-After": "1" },
  });
}

/** 429: the queue is full. */
export function queueFull(message: string): RequestError {
  return new RequestError({
    status: 429,
    type: "rate_limit_error",
    code: "queue_full",
    message,
    headers: { "Retry-After": "1" },
  });
}

/** The client went away; the status is nginx's and only seen in logs. */
export function clientClosed(): RequestError {
  return new RequestError({ status: 499, type: "client_closed", message: "the client closed the connection" });
}

/** Any thrown value as a `RequestError`. The text of an unknown error stays in the log: it may hold paths or a stack. */
export function toRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error;
  if (error instanceof EngineError) return fromEngine(error);
  return new RequestError(
    { status: 500, type: "server_error", message: "internal error; the server's log says more" },
    { cause: error },
  );
}

function fromEngine(error: EngineError): RequestError {
  const message = withoutPaths(error.message);
  switch (error.kind) {
    case "invalid_request":
    case "load_refused":
    case "load_cancelled":
      return invalidRequest(null, message);
    case "queue_full":
      return queueFull(message);
    case "not_ready":
    case "load":
      return notReady(message);
    case "shutdown":
      return notReady("the server is shutting down");
    case "cancelled":
      return clientClosed();
    case "internal":
      return new RequestError({ status: 500, type: "server_error", message }, { cause: error });
  }
}

/** First line of a message with absolute paths shortened to their last part: replies show neither stack nor disk. */
export function withoutPaths(message: string): string {
  const line = message.split("\n", 1)[0] ?? "";
  return line.replace(/(?<![\w:/.])(?:file:\/\/)?(?:[A-Za-z]:[\\/]|\/)(?:[^\s'"`():,]+[\\/])+([^\s'"`():,]*)/g, "$1");
}
