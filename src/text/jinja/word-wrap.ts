/** Line breaking of the `wordwrap` filter: Python's `textwrap`, line by line. */

import { splitLines } from "./string-split.ts";
import { codePointLength, codePoints } from "./unicode.ts";

export interface WrapOptions {
  /** Longest line, in characters. */
  readonly width: number;
  /** Words longer than a line are cut; otherwise they stand alone on one. */
  readonly breakLongWords: boolean;
  readonly breakOnHyphens: boolean;
  readonly lineBreak: string;
}

export function wordWrap(text: string, options: WrapOptions): string {
  return splitLines(text)
    .map((line) => wrapLine(line, options).join(options.lineBreak))
    .join(options.lineBreak);
}

function wrapLine(line: string, options: WrapOptions): string[] {
  const lines: string[] = [];
  let current: string[] = [];
  let room = options.width;
  const finish = () => {
    if (isBlank(current.at(-1))) current.pop();
    if (current.length > 0) lines.push(current.join(""));
    current = [];
    room = options.width;
  };
  const pending = words(line, options.breakOnHyphens).reverse();
  for (let word = pending.pop(); word !== undefined; word = pending.pop()) {
    // Blanks at a break are dropped, those in front of the whole line are not.
    if (isBlank(word) && current.length === 0 && lines.length > 0) continue;
    const length = codePointLength(word);
    if (length > room && length > options.width && (options.breakLongWords || current.length === 0)) {
      const characters = codePoints(word);
      const cut = options.breakLongWords ? Math.max(room, options.width < 1 ? 1 : 0) : length;
      if (cut > 0) current.push(characters.slice(0, cut).join(""));
      if (cut < length) pending.push(characters.slice(cut).join(""));
      finish();
    } else if (length > room) {
      pending.push(word);
      finish();
    } else {
      current.push(word);
      room -= length;
    }
  }
  finish();
  return lines;
}

function isBlank(word: string | undefined): boolean {
  return word !== undefined && word.trim() === "";
}

/** Runs of blanks and of anything else, the latter cut behind hyphens between letters. */
function words(line: string, breakOnHyphens: boolean): string[] {
  const chunks = line.match(/\s+|\S+/g) ?? [];
  return breakOnHyphens ? chunks.flatMap((chunk) => chunk.split(/(?<=\p{L}-)(?=\p{L})/u)) : chunks;
}
