/**
 * The two latest places of every n-gram of one length, in an open-addressing table of end positions. Invariant: slots
 * hold places, never hashes alone: a hit has been compared token by token, so that there are no false ones.
 */

/** Where an n-gram ended, newest first: the index just after it. 0: nowhere (an end is at least n). */
interface Places {
  latest: Int32Array;
  previous: Int32Array;
}

const START_SLOTS = 256;

export class NgramTable {
  private places = emptyPlaces(START_SLOTS);
  private used = 0;

  constructor(readonly n: number) {}

  /** Records the n-gram that ends at `end` ≥ n of `tokens`. Ends must come in ascending order, each once. */
  add(tokens: Int32Array, end: number): void {
    const at = this.slotOf(tokens, end, this.places.latest);
    const latest = this.places.latest[at] as number;
    if (latest === 0) this.used++;
    this.places.previous[at] = latest;
    this.places.latest[at] = end;
    if (this.used * 2 > this.places.latest.length) this.grow(tokens);
  }

  /** The latest end before `end` of the n-gram that ends at `end`; 0: this is its first place. */
  before(tokens: Int32Array, end: number): number {
    const at = this.slotOf(tokens, end, this.places.latest);
    const latest = this.places.latest[at] as number;
    return latest === end ? (this.places.previous[at] as number) : latest;
  }

  /** The slot of the n-gram that ends at `end`, or the empty one that it would take. */
  private slotOf(tokens: Int32Array, end: number, latest: Int32Array): number {
    const mask = latest.length - 1;
    let at = hash(tokens, end - this.n, end) & mask;
    for (;;) {
      const place = latest[at] as number;
      if (place === 0 || place === end || this.same(tokens, place, end)) return at;
      at = (at + 1) & mask;
    }
  }

  private same(tokens: Int32Array, a: number, b: number): boolean {
    for (let i = 1; i <= this.n; i++) if (tokens[a - i] !== tokens[b - i]) return false;
    return true;
  }

  private grow(tokens: Int32Array): void {
    const old = this.places;
    this.places = emptyPlaces(old.latest.length * 2);
    for (let i = 0; i < old.latest.length; i++) {
      const end = old.latest[i] as number;
      if (end === 0) continue;
      const at = this.slotOf(tokens, end, this.places.latest);
      this.places.latest[at] = end;
      this.places.previous[at] = old.previous[i] as number;
    }
  }
}

function emptyPlaces(slots: number): Places {
  return { latest: new Int32Array(slots), previous: new Int32Array(slots) };
}

/** Multiply and mix, as murmur3's finalizer does; the top bits are folded in because slots are taken from the low ones. */
function hash(tokens: Int32Array, start: number, end: number): number {
  let h = 0;
  for (let i = start; i < end; i++) {
    h = Math.imul(h ^ (tokens[i] as number), 0x85ebca6b);
    h ^= h >>> 13;
  }
  h = Math.imul(h, 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
