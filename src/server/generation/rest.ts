/**
 * Collects this thread's garbage once nothing has been generated for a while. Left alone, JavaScriptCore lets the heap
 * of an idle server stand tens of megabytes above what it needs until the next request. The engine thread does the same.
 */

/** Longer than a client needs to come with its next request. */
const REST_AFTER_MS = 1000;

export class Rest {
  private timer: NodeJS.Timeout | null = null;

  /** `busy` is asked when the time has come: work that began meanwhile calls `later` again when it ends. */
  constructor(
    private readonly busy: () => boolean,
    private readonly afterMs = REST_AFTER_MS,
    private readonly collect: () => void = () => Bun.gc(true),
  ) {}

  /** To be called when a piece of work has ended. */
  later(): void {
    this.cancel();
    this.timer = setTimeout(() => {
      if (!this.busy()) this.collect();
    }, this.afterMs);
    // A process that is about to end need not tidy up.
    this.timer.unref();
  }

  cancel(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}
