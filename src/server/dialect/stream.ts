/**
 * A streamed answer as frames, in any dialect: headers go out with the first one, before the prompt is read; silence is filled
 * by keep-alives; an error after that is a frame of its own, and then nothing. It never throws:
 * the runtime would have nothing better to do with the error than to cut the connection.
 */
import { type RequestError, toRequestError } from "../errors.ts";
import type { ChoiceEvent } from "../generation/events.ts";
import { SILENCE, withSilence } from "../generation/merge.ts";
import type { RunningGeneration } from "../generation/service.ts";
import type { SseFrame } from "../http/sse.ts";

/** The dialect's part: events to frames. */
export interface FrameSource {
  open(): readonly SseFrame[];
  push(event: ChoiceEvent): readonly SseFrame[];
  keepAlive(): SseFrame;
  /** The last frames of an answer that came to its end. */
  close(): readonly SseFrame[];
  /** The last frame of one that did not. */
  fail(error: RequestError): SseFrame;
}

export interface StreamOptions {
  readonly keepAliveMs: number;
  /** Told of every error that went into the stream. */
  readonly onError: (error: RequestError) => void;
}

export async function* streamFrames(
  generation: RunningGeneration,
  frames: FrameSource,
  options: StreamOptions,
): AsyncGenerator<SseFrame> {
  // Disposed also when the client goes away in the middle: Elysia then returns this generator.
  using running = generation;
  try {
    yield* frames.open();
    for await (const event of withSilence(running.events, options.keepAliveMs)) {
      if (event === SILENCE) yield frames.keepAlive();
      else yield* frames.push(event);
    }
    yield* frames.close();
  } catch (error) {
    const reply = toRequestError(error);
    options.onError(reply);
    yield frames.fail(reply);
  }
}
