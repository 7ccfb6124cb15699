/**
 * A stream of frames as a response. Each write goes to the socket at once; silence is filled with keep-alives; a reader
 * that takes nothing is cut. Whatever ends it, `gone` is told, so that what it stands for is given up.
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
  /** The client is gone, or was cut: `produce` should come to its end. */
  readonly gone: () => void;
}

/** The part of Bun's direct stream controller that is used here. */
interface DirectController {
  /** Bytes taken; a promise when the socket is full; 0 when it is closed. */
  write(text: string): number | Promise<number>;
  flush(): number | Promise<number>;
  close(): void;
}

/** `produce` writes frames until it resolves; it must not reject. */
export function sseResponse(produce: (write: (text: string) => void) => Promise<void>, options: SseOptions): Response {
  let writer: Writer | null = null;
  const leave = () => {
    writer?.leave();
    options.gone();
  };
  const pull = async (controller: DirectController) => {
    const own = new Writer(controller, options, leave);
    writer = own;
    if (options.signal.aborted) leave();
    options.signal.addEventListener("abort", leave, { once: true });
    try {
      await produce((text) => own.write(text));
      await own.drained();
    } finally {
      own.leave();
      options.signal.removeEventListener("abort", leave);
      controller.close();
    }
  };
  // Bun's types know this kind of stream, the standard's do not.
  return new Response(new ReadableStream({ type: "direct", pull, cancel: leave }), { headers: SSE_HEADERS });
}

/** What may pile up for a client while its socket is full, in characters. Ours: an answer of the longest kind. */
const PILE_MAX = 16 << 20;

class Writer {
  private writtenAt = performance.now();
  private timer: NodeJS.Timeout | null = null;
  private open = true;
  /** While the socket is full. */
  private draining: Promise<void> | null = null;
  private pile: string[] = [];
  private piled = 0;

  constructor(
    private readonly controller: DirectController,
    private readonly options: SseOptions,
    private readonly leaveAll: () => void,
  ) {
    if (options.keepAliveMs > 0) this.arm(options.keepAliveMs);
  }

  write(text: string): void {
    if (!this.open) return;
    this.writtenAt = performance.now();
    if (this.draining !== null) {
      this.pile.push(text);
      this.piled += text.length;
      if (this.piled > PILE_MAX) this.cut();
      return;
    }
    const taken = this.controller.write(text);
    if (typeof taken === "number") void this.controller.flush();
    else this.draining = this.drain(taken);
  }

  /** Resolves when everything written has left, or nothing more will. */
  async drained(): Promise<void> {
    while (this.draining !== null && this.open) await this.draining;
  }

  private async drain(taken: Promise<number>): Promise<void> {
    const { promise: late, resolve } = Promise.withResolvers<false>();
    const timer = setTimeout(() => resolve(false), this.options.stallMs);
    const inTime = await Promise.race([taken.then(() => true), late]).catch(() => false);
    clearTimeout(timer);
    this.draining = null;
    if (!inTime) return this.cut();
    const text = this.pile.join("");
    this.pile = [];
    this.piled = 0;
    if (text !== "") this.write(text);
  }

  private cut(): void {
    if (!this.open) return;
    this.options.cut();
    this.leaveAll();
  }

  /** One timer however many writes: it looks at the silence when it rings. */
  private arm(milliseconds: number): void {
    this.timer = setTimeout(() => {
      const { keepAliveMs, keepAlive } = this.options;
      const silence = performance.now() - this.writtenAt;
      if (silence >= keepAliveMs && this.draining === null) this.write(keepAlive());
      this.arm(silence >= keepAliveMs ? keepAliveMs : keepAliveMs - silence);
    }, milliseconds);
  }

  /** Nothing is written from now on. */
  leave(): void {
    this.open = false;
    this.pile = [];
    if (this.timer !== null) clearTimeout(this.timer);
  }
}
