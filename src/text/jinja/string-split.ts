/** Methods of `str` that cut a text into pieces. */
import { Bound } from "./bind.ts";
import { TemplateError } from "./errors.ts";
import { PIECE_WORK } from "./limits.ts";
import type { Run } from "./run.ts";
import type { StringMethod } from "./string-methods.ts";
import { splitAt } from "./string-search.ts";
import { SPACE_CLASS, trimEnd, trimStart } from "./unicode.ts";
import { type Arguments, type Keywords, List, Tuple, type Value } from "./values.ts";

const BLANKS = new RegExp(`${SPACE_CLASS}+`, "g");
const LAST_BLANKS = new RegExp(`^([^]*)${SPACE_CLASS}`);
/** Python's line ends: more than \n and \r\n. The control characters are written by code. */
const LINE_ENDS = new RegExp(`\\r\\n|[\\n\\r${String.fromCharCode(11, 12, 28, 29, 30, 0x85, 0x2028, 0x2029)}]`, "g");

export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  let start = 0;
  for (const match of text.matchAll(LINE_ENDS)) {
    const end = match.index + match[0].length;
    lines.push(text.slice(start, keepEnds ? end : match.index));
    start = end;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

function splitBlanks(text: string, count: number): string[] {
  let rest = trimStart(text);
  if (count < 0) return rest === "" ? [] : trimEnd(rest).split(BLANKS);
  const parts: string[] = [];
  while (rest !== "" && parts.length < count) {
    BLANKS.lastIndex = 0;
    const match = BLANKS.exec(rest);
    if (match === null) break;
    parts.push(rest.slice(0, match.index));
    rest = rest.slice(match.index + match[0].length);
  }
  if (rest !== "") parts.push(parts.length < count ? trimEnd(rest) : rest);
  return parts;
}

function splitBlanksFromRight(text: string, count: number): string[] {
  let rest = trimEnd(text);
  const parts: string[] = [];
  while (rest !== "" && parts.length < count) {
    const head = LAST_BLANKS.exec(rest)?.[1];
    if (head === undefined) break;
    parts.unshift(rest.slice(head.length + 1));
    rest = trimEnd(head);
  }
  if (rest !== "") parts.unshift(parts.length < count ? trimStart(rest) : rest);
  return parts;
}

function splitAtFromRight(text: string, separator: string, count: number): string[] {
  const parts = text.split(separator);
  if (count < 0 || count >= parts.length - 1) return parts;
  const kept = parts.length - count;
  return [parts.slice(0, kept).join(separator), ...parts.slice(kept)];
}

const split =
  (name: "split" | "rsplit"): StringMethod =>
  (run, text, args, keywords) => {
    const bound = new Bound(name, ["sep?", "maxsplit?"], args, keywords);
    const separator = bound.textOrNull("sep");
    const count = bound.integer("maxsplit", -1);
    const fromRight = name === "rsplit";
    run.charge(text.length);
    if (separator === "") throw new TemplateError("empty separator");
    if (separator !== null) {
      return textList(run, fromRight ? splitAtFromRight(text, separator, count) : splitAt(text, separator, count));
    }
    return textList(run, fromRight && count >= 0 ? splitBlanksFromRight(text, count) : splitBlanks(text, count));
  };

const partition =
  (name: "partition" | "rpartition"): StringMethod =>
  (run: Run, text: string, args: Arguments, keywords: Keywords): Value => {
    run.charge(text.length);
    const separator = new Bound(name, ["sep"], args, keywords).text("sep");
    if (separator === "") throw new TemplateError("empty separator");
    const fromRight = name === "rpartition";
    const at = fromRight ? text.lastIndexOf(separator) : text.indexOf(separator);
    if (at < 0) return new Tuple(fromRight ? ["", "", text] : [text, "", ""]);
    return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
  };

function textList(run: Run, parts: readonly string[]): List {
  run.charge(parts.length * PIECE_WORK);
  return new List(parts);
}

export const splitMethods: readonly (readonly [string, StringMethod])[] = [
  ["split", split("split")],
  ["rsplit", split("rsplit")],
  ["partition", partition("partition")],
  ["rpartition", partition("rpartition")],
  [
    "splitlines",
    (run, text, args, keywords) => {
      run.charge(text.length);
      return textList(
        run,
        splitLines(text, new Bound("splitlines", ["keepends?"], args, keywords).flag("keepends", false)),
      );
    },
  ],
];
