/** A fair limit on how many things run at the same time: first come, first served; a waiter leaves when aborted. */

export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Runs `work` in a slot. Throws the signal's reason if it is aborted while waiting. */
  async run<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    await this.#enter(signal);
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }

  #enter(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (this.#free > 0) {
      this.#free--;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const granted = () => {
        signal?.removeEventListener("abort", left);
        resolve();
      };
      const left = () => {
        this.#waiting.splice(this.#waiting.indexOf(granted), 1);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", left, { once: true });
      this.#waiting.push(granted);
    });
  }
}
