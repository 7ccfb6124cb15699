/**
 * A streamed answer as frames, in any dialect: headers go out with the first one, before the prompt is read; an
 * error after that is a frame of its own, and then nothing.
 */
import { type RequestError, toRequestError } from "../errors.ts";
import type { ChoiceEvent } from "../generation/events.ts";
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

/**
 * Writes a running answer to its end, and disposes it. Never rejects.
 * @param onError told of an error that went into the stream
 */
export async function streamFrames(
  generation: RunningGeneration,
  frames: FrameSource,
  onError: (error: RequestError) => void,
  write: (text: string) => void,
): Promise<void> {
  using running = generation;
  try {
    write(textOf(frames.open()));
    await running.each((event) => {
      const made = frames.push(event);
      if (made.length > 0) write(textOf(made));
    });
    write(textOf(frames.close()));
  } catch (error) {
    const reply = toRequestError(error);
    onError(reply);
    write(textOf([frames.fail(reply)]));
  }
}

/** Frames that belong together leave in one write. */
function textOf(frames: readonly SseFrame[]): string {
  const [only] = frames;
  if (frames.length === 1 && only !== undefined) return only.toSSE();
  return frames.map((frame) => frame.toSSE()).join("");
}
