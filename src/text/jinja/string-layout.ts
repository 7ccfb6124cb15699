/** Methods of `str` about blanks and widths. */
import { Bound } from "./bind.ts";
import { TemplateError } from "./errors.ts";
import { checkLength, type Run } from "./run.ts";
import type { StringMethod } from "./string-methods.ts";
import { codePointLength, isSpaceCode, trimEnd, trimStart } from "./unicode.ts";
import type { Arguments, Keywords } from "./values.ts";

/** Removes white space, or any of `characters`, at the ends that are asked for. */
export function strip(text: string, characters: string | null, ends: "both" | "left" | "right"): string {
  const set =
    characters === null ? null : new Set(Array.from(characters, (character) => character.codePointAt(0) ?? 0));
  const isTrimmed = set === null ? isSpaceCode : (code: number) => set.has(code);
  const left = ends === "right" ? text : trimStart(text, isTrimmed);
  return ends === "left" ? left : trimEnd(left, isTrimmed);
}

/** Blanks (or `fill`) on both sides; an odd one goes left when the width is odd, as in CPython. */
export function center(text: string, width: number, fill = " "): string {
  const missing = Math.max(width - codePointLength(text), 0);
  checkLength(missing + text.length);
  const left = Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(left) + text + fill.repeat(missing - left);
}

function justify(run: Run, name: string, text: string, args: Arguments, keywords: Keywords): string {
  const bound = new Bound(name, ["width", "fillchar?"], args, keywords);
  const fill = bound.text("fillchar", " ");
  if (codePointLength(fill) !== 1) throw new TemplateError("the fill character must be exactly one character long");
  const width = bound.integer("width");
  if (name === "center") return center(text, width, fill);
  const missing = Math.max(width - codePointLength(text), 0);
  checkLength(missing + text.length);
  run.charge(missing);
  return name === "ljust" ? text + fill.repeat(missing) : fill.repeat(missing) + text;
}

function zeroFill(text: string, width: number): string {
  const missing = Math.max(width - codePointLength(text), 0);
  checkLength(missing + text.length);
  const sign = /^[+-]/.exec(text)?.[0] ?? "";
  return sign + "0".repeat(missing) + text.slice(sign.length);
}

function expandTabs(text: string, size: number): string {
  let column = 0;
  let length = 0;
  return Array.from(text, (character) => {
    if (character === "\n" || character === "\r") column = -1;
    const expanded = character === "\t" ? " ".repeat(size > 0 ? size - (column % size) : 0) : character;
    length += expanded.length;
    checkLength(length);
    column += character === "\t" ? expanded.length : 1;
    return expanded;
  }).join("");
}

const stripped =
  (name: string, ends: "both" | "left" | "right"): StringMethod =>
  (run, text, args, keywords) => {
    run.charge(text.length);
    return strip(text, new Bound(name, ["chars?"], args, keywords).textOrNull("chars"), ends);
  };

export const layoutMethods: readonly (readonly [string, StringMethod])[] = [
  ["strip", stripped("strip", "both")],
  ["lstrip", stripped("lstrip", "left")],
  ["rstrip", stripped("rstrip", "right")],
  ["center", (run, text, args, keywords) => justify(run, "center", text, args, keywords)],
  ["ljust", (run, text, args, keywords) => justify(run, "ljust", text, args, keywords)],
  ["rjust", (run, text, args, keywords) => justify(run, "rjust", text, args, keywords)],
  [
    "zfill",
    (_run, text, args, keywords) => zeroFill(text, new Bound("zfill", ["width"], args, keywords).integer("width")),
  ],
  [
    "expandtabs",
    (_run, text, args, keywords) =>
      expandTabs(text, new Bound("expandtabs", ["tabsize?"], args, keywords).integer("tabsize", 8)),
  ],
];
