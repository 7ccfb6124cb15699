/**
 * From a request in the internal form to a reply, the same for every dialect: the service starts it, and the dialect's
 * wire makes of its events either one body or a stream of frames.
 */
import { type TSchema, Type as t } from "@sinclair/typebox";
import { type RequestError, toRequestError } from "../errors.ts";
import { ChoiceCollector, type ChoiceResult } from "../generation/events.ts";
import { withLateThoughts } from "../generation/late-thoughts.ts";
import type { GenerationRequest } from "../generation/request.ts";
import type { GenerationService, RunningGeneration } from "../generation/service.ts";
import { readJsonObject } from "../http/body.ts";
import { sseResponse } from "../http/sse-response.ts";
import type { ServerOptions } from "../options.ts";
import { apiOf } from "../telemetry/telemetry.ts";
import { type FrameSource, streamFrames } from "./stream.ts";
import { bodyChecker } from "./validation.ts";

export interface DialectParts {
  readonly service: GenerationService;
  readonly options: ServerOptions;
  /** Told of errors whose cause the client does not see. */
  readonly onError: (error: RequestError) => void;
}

/** One request of a dialect with its way back. */
export interface DialectCall {
  readonly generation: GenerationRequest;
  readonly stream: boolean;
  /** Made once the request runs: its wire in either form. */
  wire(running: RunningGeneration): DialectWire;
}

export interface DialectWire {
  whole(results: readonly ChoiceResult[]): object;
  /** Called for a stream only. */
  frames(): FrameSource;
}

/** What a handler gets of its request. */
export interface Exchange {
  readonly request: Request;
  readonly server: { timeout(request: Request, seconds: number): void } | null;
  readonly set: { readonly headers: Record<string, string | number> };
}

export async function respond(call: DialectCall, { request, server }: Exchange, parts: DialectParts) {
  // Prompts and answers take longer than any idle limit; keep-alives and the client's socket decide instead.
  server?.timeout(request, 0);
  const running = await parts.service.begin(call.generation, request.signal, apiOf(request.url));
  const wire = call.wire(running);
  if (!call.stream) return wire.whole(await finished(running));
  const frames = wire.frames();
  const { keepAliveMs, limits } = parts.options;
  return sseResponse((write) => streamFrames(running, frames, parts.onError, write), {
    signal: request.signal,
    keepAliveMs,
    keepAlive: () => frames.keepAlive().toSSE(),
    stallMs: limits.stallMs,
    cut: () => server?.timeout(request, 1),
    gone: () => running[Symbol.dispose](),
  });
}

/** Reads and checks a body (`empty`: none is the empty object). */
export function jsonParser(schema: TSchema, options: ServerOptions, { empty = false } = {}) {
  const check = bodyChecker(schema);
  const { maxBodyBytes: maxBytes, limits } = options;
  return async ({ request }: { request: Request }) =>
    check(await readJsonObject(request, { maxBytes, empty, ...limits }));
}

export const generationHeaders = t.Object({
  "x-priority": t.Optional(t.String({ description: "low: requests without it go first." })),
});

/** `x-priority: low` puts a request into the background class (batching.md B11). */
export function priorityOf(request: Request): 0 | 1 {
  return request.headers.get("x-priority")?.trim().toLowerCase() === "low" ? 1 : 0;
}

async function finished(generation: RunningGeneration): Promise<ChoiceResult[]> {
  using running = generation;
  const collector = new ChoiceCollector();
  try {
    for await (const event of running.events) collector.push(event);
  } catch (error) {
    throw toRequestError(error);
  }
  return collector.results().map((result) => withLateThoughts(result, running.job.reply));
}
