/**
 * Stretches of the raw output with their places in it (UTF-16 offsets), so that whatever comes out of a chain of filters
 * can be laid beside the tokens that wrote it. `HeldText` is what a filter has taken and not yet given on; every
 * character passes through it once, whatever the sizes of the pieces.
 */

export interface Slice {
  readonly text: string;
  /** Place of its first character in the raw output. */
  readonly start: number;
}

export class HeldText {
  private slices: Slice[] = [];
  /** Slices before this one are given on. */
  private first = 0;
  /** Characters of the first slice that are given on. */
  private skipped = 0;
  private count = 0;

  get length(): number {
    return this.count;
  }

  append(slice: Slice): void {
    if (slice.text === "") return;
    this.slices.push(slice);
    this.count += slice.text.length;
  }

  /** Gives the first `length` characters on, as few slices as their places allow. */
  take(length: number): Slice[] {
    if (length <= 0) return [];
    const only = this.slices[this.first];
    if (only !== undefined && this.skipped === 0 && only.text.length === length) {
      this.count -= length;
      this.dropFirst();
      return [only];
    }
    const taken: { texts: string[]; start: number; end: number }[] = [];
    let wanted = Math.min(length, this.count);
    this.count -= wanted;
    while (wanted > 0) {
      const slice = this.slices[this.first];
      if (slice === undefined) break;
      const from = this.skipped;
      const to = Math.min(slice.text.length, from + wanted);
      const start = slice.start + from;
      const text = slice.text.slice(from, to);
      const previous = taken.at(-1);
      if (previous?.end === start) {
        previous.texts.push(text);
        previous.end = start + text.length;
      } else taken.push({ texts: [text], start, end: start + text.length });
      wanted -= to - from;
      if (to === slice.text.length) this.dropFirst();
      else this.skipped = to;
    }
    return taken.map(({ texts, start }) => ({ text: texts.join(""), start }));
  }

  /** Place in the raw output behind the first `length` characters (at least one), or behind all there are. */
  placeBehind(length: number): number {
    let wanted = length + this.skipped;
    let place = 0;
    for (let i = this.first; i < this.slices.length; i++) {
      const slice = this.slices[i];
      if (slice === undefined) break;
      place = slice.start + Math.min(wanted, slice.text.length);
      wanted -= slice.text.length;
      if (wanted <= 0) break;
    }
    return place;
  }

  private dropFirst(): void {
    this.first += 1;
    this.skipped = 0;
    if (this.first === this.slices.length) {
      this.slices = [];
      this.first = 0;
    }
  }
}

/** The slices' text. */
export function textOf(slices: readonly Slice[]): string {
  return slices.map(({ text }) => text).join("");
}
