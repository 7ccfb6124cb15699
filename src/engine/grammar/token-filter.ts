/**
 * Takes out of a mask the tokens that would pass a counted limit. Only tokens that could are looked at: all that are
 * longer than the room of the open string, and those with a comma once an array or object is nearly full.
 */
import type { CounterState, Counters } from "./counters.ts";

export class TokenFilter {
  private readonly withComma: readonly number[];
  /** Ids by length in bytes, longest first. */
  private readonly byLength: readonly number[];

  constructor(private readonly bytes: readonly Uint8Array[]) {
    const ids = bytes.map((_, id) => id).filter((id) => (bytes[id]?.length ?? 0) > 0);
    this.withComma = ids.filter((id) => bytes[id]?.includes(0x2c) === true);
    this.byLength = ids.sort((a, b) => (bytes[b]?.length ?? 0) - (bytes[a]?.length ?? 0));
  }

  /** Clears bits of `mask` whose token passes a limit from `state`. */
  apply(counters: Counters, state: CounterState, mask: Uint32Array): void {
    const room = counters.stringRoom(state);
    for (const id of this.byLength) {
      if ((this.bytes[id]?.length ?? 0) <= room) break;
      this.check(counters, state, mask, id);
    }
    if (counters.memberRoom(state) > LONGEST_RUN_OF_COMMAS) return;
    for (const id of this.withComma) this.check(counters, state, mask, id);
  }

  private check(counters: Counters, state: CounterState, mask: Uint32Array, id: number): void {
    const word = mask[id >> 5] ?? 0;
    const bit = 1 << (id & 31);
    const token = this.bytes[id];
    if ((word & bit) === 0 || token === undefined) return;
    if (counters.advance(state, token) === null) mask[id >> 5] = word & ~bit;
  }
}

/** A token with more of them begins more than that many members; none is known. Ours: half of the least counted limit. */
const LONGEST_RUN_OF_COMMAS = 32;
