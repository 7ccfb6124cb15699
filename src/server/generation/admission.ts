/**
 * Counts the rows that requests hold, so that a full queue is told with a status before any header of a stream goes
 * out. The bound is the engine's own (rows computed at once + rows waiting); the engine refuses too, as the second line.
 */
import { queueFull } from "../errors.ts";

export class Admission {
  private held = 0;
  private started = 0;

  constructor(
    private readonly maxBatch: number,
    private readonly maxQueue: number,
  ) {}

  /** Takes slots for a request with that many rows; throws 429 when they are not there. */
  enter(rows: number): Ticket {
    // A request never runs more than a batch of its own rows at once.
    const slots = Math.max(1, Math.min(rows, this.maxBatch));
    if (this.held + slots > this.maxBatch + this.maxQueue) {
      throw queueFull(`the queue is full (${this.maxQueue} waiting requests); try again in a moment`);
    }
    this.held += slots;
    let open = true;
    return {
      slots,
      rowStarted: () => {
        this.started += 1;
      },
      rowEnded: () => {
        this.started -= 1;
      },
      [Symbol.dispose]: () => {
        if (open) this.held -= slots;
        open = false;
      },
    };
  }

  /** True when no request is there. */
  get empty(): boolean {
    return this.held === 0;
  }

  /** Rows that the engine has begun, and slots that wait for it. */
  counts(): { readonly running: number; readonly waiting: number } {
    return { running: this.started, waiting: Math.max(0, this.held - this.started) };
  }
}

/** Slots of one request; disposing it twice is harmless. */
export interface Ticket extends Disposable {
  readonly slots: number;
  rowStarted(): void;
  rowEnded(): void;
}
