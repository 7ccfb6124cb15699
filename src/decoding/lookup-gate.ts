/**
 * When a long lookup draft is tried where nothing is known of what rows cost (decoding.md §6). Belongs to one request and
 * changes only the length of drafts, never the output.
 */

const LONG_FAILS_MAX = 2;
const LONG_REST_ROUNDS = 8;

/** Long drafts: after two that were mostly wrong, none for eight lookup rounds. */
export class LongDraftGate {
  /** Long drafts in a row of which less than half was accepted. */
  fails = 0;
  /** Lookup rounds since the last long draft. */
  roundsSince = 0;

  get allowed(): boolean {
    return this.fails < LONG_FAILS_MAX || this.roundsSince >= LONG_REST_ROUNDS;
  }

  /** After every lookup round. `base`: longest draft that does not count as long. */
  update(drafted: number, accepted: number, base: number): void {
    if (drafted <= base) {
      this.roundsSince++;
      return;
    }
    this.fails = 2 * accepted < drafted ? this.fails + 1 : 0;
    this.roundsSince = 0;
  }
}
