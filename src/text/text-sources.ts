/**
 * Where a text came from, piece by piece: places in the undivided output are marked with their source as tokens complete
 * them, and the slices of it that are shown are told as spans. A character made of several tokens has the last one's.
 */
import type { Slice } from "./reply/slice.ts";

/** Length in UTF-16 units, and source. */
export type Span<S> = readonly [length: number, source: S];

export class TextSources<S> {
  /** Marked ranges, each from the end of the one before it. */
  private readonly marks: { readonly end: number; readonly source: S }[] = [];

  /** All output up to `end` that has no source yet came from this one. */
  mark(end: number, source: S): void {
    this.marks.push({ end, source });
  }

  /** Spans of slices that follow each other; their lengths sum up to the slices'. Earlier marks are forgotten. */
  spans(slices: readonly Slice[]): Span<S>[] {
    const spans: Span<S>[] = [];
    for (const { text, start } of slices) {
      const end = start + text.length;
      for (let at = start; at < end; ) {
        const mark = this.markAt(at);
        if (mark === undefined) throw new RangeError(`no source is known at ${at}`);
        const upTo = Math.min(end, mark.end);
        append(spans, upTo - at, mark.source);
        at = upTo;
      }
    }
    return spans;
  }

  private markAt(place: number) {
    while (this.marks[0] !== undefined && this.marks[0].end <= place) this.marks.shift();
    return this.marks[0];
  }
}

function append<S>(spans: Span<S>[], length: number, source: S): void {
  const last = spans.at(-1);
  if (last !== undefined && last[1] === source) spans[spans.length - 1] = [last[0] + length, source];
  else spans.push([length, source]);
}
