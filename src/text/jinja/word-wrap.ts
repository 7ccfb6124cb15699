/** Line breaking of the `wordwrap` filter: Python's `textwrap` with blanks kept, line by line. */

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
  let current = "";
  for (const word of words(line, options.breakOnHyphens).flatMap((chunk) => cutLong(chunk, options))) {
    if (current !== "" && codePointLength(current) + codePointLength(word) > options.width) {
      lines.push(current);
      current = "";
    }
    current += word;
  }
  if (current !== "") lines.push(current);
  return lines;
}

/** Runs of blanks and of anything else, the latter cut behind hyphens between letters. */
function words(line: string, breakOnHyphens: boolean): string[] {
  const chunks = line.match(/\s+|\S+/g) ?? [];
  return breakOnHyphens ? chunks.flatMap((chunk) => chunk.split(/(?<=\p{L}-)(?=\p{L})/u)) : chunks;
}

function cutLong(word: string, options: WrapOptions): string[] {
  const characters = codePoints(word);
  if (!options.breakLongWords || characters.length <= options.width || options.width < 1) return [word];
  const pieces: string[] = [];
  for (let at = 0; at < characters.length; at += options.width) {
    pieces.push(characters.slice(at, at + options.width).join(""));
  }
  return pieces;
}
