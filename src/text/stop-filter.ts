/**
 * Stop strings over stretches of text that know their places: what comes out is a stretch of what went in, and a match
 * is told by its place in the raw output, also where something stood between two stretches.
 */
import { HeldText, type Slice } from "./reply/slice.ts";
import type { StopMatcher } from "./stop-strings.ts";

export class StopFilter {
  private readonly held = new HeldText();
  private end: number | null = null;

  constructor(private readonly stops: StopMatcher) {}

  /** The stop string that was found. */
  get matched(): string | null {
    return this.stops.matched;
  }

  get isInert(): boolean {
    return this.stops.isInert;
  }

  /** Place behind the match; null while there is none. */
  get matchEnd(): number | null {
    return this.end;
  }

  push(slice: Slice): Slice[] {
    if (this.matched !== null) return [];
    this.held.append(slice);
    return this.give(this.stops.push(slice.text).text.length);
  }

  /** What follows is not text that a stop string could go on in: gives out what was held back. */
  flush(): Slice[] {
    return this.give(this.stops.flush().length);
  }

  private give(length: number): Slice[] {
    const slices = this.held.take(length);
    if (this.matched !== null) this.end ??= this.held.placeBehind(this.matched.length);
    return slices;
  }
}
