/**
 * A stream of frames as a response. Each write goes to the socket at once; silence is filled with keep-alives; a reader
 * that takes nothing is cut. Whatever ends it, the source is left, so that what it stands for is given up.
 */
import { SSE_HEADERS } from "./sse.ts";

export interface SseOptions {
  /** Aborted when the client is gone. Bun does not always tell the stream itself. */
  readonly signal: AbortSignal;
  /** Silence after which a keep-alive is written; 0: never. */
  readonly keepAliveMs: number;
  readonly keepAlive: () => string;
  /** How long the client may leave what was written unread once the socket takes no more. */
  readonly stallMs: number;
  /** Ends the connection of a client that does not read. */
  readonly cut: () => void;
}

/** The part of Bun's direct stream controller that is used here. */
interface DirectController {
  /** Bytes taken; a promise when the socket is full; 0 when it is closed. */
  write(text: string): number | Promise<number>;
  flush(): number | Promise<number>;
  close(): void;
}

/** `source` must not throw; it is left when the client goes. */
export function sseResponse(source: AsyncGenerator<string>, options: SseOptions): Response {
  let gone = false;
  const leave = () => {
    gone = true;
    // It may be in the middle of `next`: its end is asked for, and comes with the signal.
    void source.return(undefined).catch(() => undefined);
  };
  const pull = async (controller: DirectController) => {
    const writer = new Writer(controller, options);
    options.signal.addEventListener("abort", leave, { once: true });
    try {
      for (let next = await source.next(); next.done !== true && !gone; next = await source.next()) {
        const full = writer.write(next.value);
        if (full !== null && !(await full)) {
          options.cut();
          return;
        }
      }
    } finally {
      writer.end();
      options.signal.removeEventListener("abort", leave);
      leave();
      controller.close();
    }
  };
  // Bun's types know this kind of stream, the standard's do not.
  const stream = new ReadableStream({ type: "direct", pull, cancel: leave });
  return new Response(stream, { headers: SSE_HEADERS });
}

class Writer {
  private writtenAt = performance.now();
  private timer: NodeJS.Timeout | null = null;
  private stalled = false;

  constructor(
    private readonly controller: DirectController,
    private readonly options: SseOptions,
  ) {
    if (options.keepAliveMs > 0) this.arm(options.keepAliveMs);
  }

  /** Null: written. Else the socket is full, and the promise tells whether the client read on in time. */
  write(text: string): Promise<boolean> | null {
    this.writtenAt = performance.now();
    const taken = this.controller.write(text);
    if (typeof taken !== "number") return this.drained(taken);
    void this.controller.flush();
    return null;
  }

  private async drained(taken: Promise<number>): Promise<boolean> {
    this.stalled = true;
    const { promise: late, resolve } = Promise.withResolvers<false>();
    const timer = setTimeout(() => resolve(false), this.options.stallMs);
    const inTime = await Promise.race([taken.then(() => true), late]).catch(() => false);
    clearTimeout(timer);
    this.stalled = false;
    return inTime;
  }

  /** One timer however many writes: it looks at the silence when it rings. */
  private arm(milliseconds: number): void {
    this.timer = setTimeout(() => {
      const { keepAliveMs, keepAlive } = this.options;
      const silence = performance.now() - this.writtenAt;
      if (silence >= keepAliveMs && !this.stalled) this.write(keepAlive());
      this.arm(silence >= keepAliveMs ? keepAliveMs : keepAliveMs - silence);
    }, milliseconds);
  }

  end(): void {
    if (this.timer !== null) clearTimeout(this.timer);
  }
}
