/** What a call of the library can fail with, besides the `TypeError` of a wrong argument (library-api.md §4). */
import { EngineError } from "../engine/client.ts";
import type { GenerationResult } from "./events.ts";

/** The request cannot be run as it is: an option, the prompt, a mode that the pair does not have. */
export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly status: number;
  /** e.g. `context_length_exceeded`, `queue_full`; null: nothing special. */
  readonly code: string | null;
  constructor(message: string, options: { status?: number; code?: string | null; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? {} : { cause: options.cause });
    this.status = options.status ?? 400;
    this.code = options.code ?? null;
  }
}

/** The caller's signal ended the generation; what was committed until then is in `partial`. */
export class CancelledError extends Error {
  override readonly name = "CancelledError";
  readonly partial: GenerationResult | null;
  constructor(partial: GenerationResult | null, cause: unknown) {
    super("the generation was cancelled", { cause });
    this.partial = partial;
  }
}

/** The pair was disposed of. */
export class DisposedError extends Error {
  override readonly name = "DisposedError";
  constructor() {
    super("the pair has been disposed of");
  }
}

/** What the engine threw, in the library's terms. */
export function fromEngine(error: unknown): unknown {
  if (!(error instanceof EngineError)) return error;
  const { kind, message } = error;
  if (kind === "invalid_request") {
    const code = message.startsWith("prompt is too long") ? "context_length_exceeded" : null;
    return new RequestError(message, { code, cause: error });
  }
  if (kind === "queue_full") return new RequestError(message, { status: 429, code: kind, cause: error });
  return error;
}

/** What an aborted signal makes a generation reject with: its own reason, wrapped when it is one of the platform's. */
export function cancellation(signal: AbortSignal, partial: GenerationResult | null): unknown {
  const reason: unknown = signal.reason;
  const platform = reason instanceof DOMException && (reason.name === "AbortError" || reason.name === "TimeoutError");
  return platform ? new CancelledError(partial, reason) : reason;
}
