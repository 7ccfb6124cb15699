/**
 * Messages to the main thread in order, of which the last may be held back until the device has its next work: handing a
 * message over takes the host a good part of a small model's round.
 */
import type { FromEngine } from "./protocol.ts";

export class Outbox {
  private held: FromEngine | null = null;

  constructor(private readonly send: (message: FromEngine) => void) {}

  post(message: FromEngine): void {
    this.flush();
    this.send(message);
  }

  /** To be followed by `flush` as soon as the device has work; the end of a row is posted, which flushes too. */
  hold(message: FromEngine): void {
    this.flush();
    this.held = message;
  }

  flush(): void {
    const { held } = this;
    this.held = null;
    if (held !== null) this.send(held);
  }
}
