/** Methods of `str` that look for a part, and `replace`. */
import { Bound } from "./bind.ts";
import { TemplateError } from "./errors.ts";
import { PIECE_WORK } from "./limits.ts";
import { checkLength, type Run } from "./run.ts";
import type { StringMethod } from "./string-methods.ts";
import { codePointLength, codePoints, isFlat } from "./unicode.ts";
import { type Arguments, type Keywords, Tuple, textOf, typeName, Undefined, type Value } from "./values.ts";

/** `text.replace(old, new, count)`; a negative count replaces all. */
export function replace(run: Run, text: string, old: string, fresh: string, count: number): string {
  run.charge(text.length);
  const parts = old === "" ? splitBetween(text, count) : splitAt(text, old, count);
  run.charge(parts.length * PIECE_WORK);
  checkLength(text.length + (parts.length - 1) * Math.max(fresh.length - old.length, 0));
  return parts.join(fresh);
}

/** The gaps around and between all characters, at most `count` of them. */
function splitBetween(text: string, count: number): string[] {
  const parts = ["", ...codePoints(text), ""];
  if (count < 0 || count >= parts.length - 1) return parts;
  return [...parts.slice(0, count), parts.slice(count).join("")];
}

/** The text cut at the first `count` occurrences of `separator`. */
export function splitAt(text: string, separator: string, count: number): string[] {
  const parts = text.split(separator);
  if (count < 0 || count >= parts.length - 1) return parts;
  return [...parts.slice(0, count), parts.slice(count).join(separator)];
}

interface Window {
  readonly text: string;
  readonly part: string;
  /** Code points cut off in front. */
  readonly offset: number;
  /** False when `start` lies behind the end: not even the empty part is there. */
  readonly valid: boolean;
}

/** `(part, start, end)` of a search, with the text cut to start…end. */
function searchWindow(run: Run, name: string, text: string, args: Arguments, keywords: Keywords): Window {
  run.charge(text.length);
  const bound = new Bound(name, ["sub", "start?", "end?"], args, keywords);
  return cut(text, bound.text("sub"), bound.integerOrNull("start"), bound.integerOrNull("end"));
}

function cut(text: string, part: string, start: number | null, end: number | null): Window {
  if (start === null && end === null) return { text, part, offset: 0, valid: true };
  const length = codePointLength(text);
  const clip = (index: number) => Math.max(index < 0 ? index + length : index, 0);
  const from = clip(start ?? 0);
  const to = Math.min(clip(end ?? length), length);
  const window = isFlat(text) ? text.slice(from, to) : codePoints(text).slice(from, to).join("");
  return { text: window, part, offset: from, valid: from <= to };
}

function position(window: Window, fromRight: boolean): number {
  const { text, part, offset, valid } = window;
  if (!valid) return -1;
  const index = fromRight ? text.lastIndexOf(part) : text.indexOf(part);
  if (index < 0) return -1;
  return offset + (isFlat(text) ? index : codePointLength(text.slice(0, index)));
}

const found =
  (name: string, fromRight: boolean, mustExist: boolean): StringMethod =>
  (run, text, args, keywords) => {
    const index = position(searchWindow(run, name, text, args, keywords), fromRight);
    if (index < 0 && mustExist) throw new TemplateError("substring not found");
    return BigInt(index);
  };

function count(run: Run, text: string, args: Arguments, keywords: Keywords): Value {
  const window = searchWindow(run, "count", text, args, keywords);
  if (!window.valid) return 0n;
  if (window.part === "") return BigInt(codePointLength(window.text) + 1);
  const count = window.text.split(window.part).length - 1;
  run.charge(count * PIECE_WORK);
  return BigInt(count);
}

const edge =
  (name: "startswith" | "endswith"): StringMethod =>
  (_run, text, args, keywords) => {
    const bound = new Bound(name, ["affix", "start?", "end?"], args, keywords);
    const affix = bound.value("affix");
    const candidates = affix instanceof Tuple ? affix.items : [affix];
    return candidates.some((candidate) => {
      const part = textOf(candidate);
      if (candidate instanceof Undefined) candidate.fail();
      if (part === undefined) {
        throw new TemplateError(`${name} first arg must be str or a tuple of str, not ${typeName(candidate)}`);
      }
      const window = cut(text, part, bound.integerOrNull("start"), bound.integerOrNull("end"));
      return window.valid && (name === "startswith" ? window.text.startsWith(part) : window.text.endsWith(part));
    });
  };

export const searchMethods: readonly (readonly [string, StringMethod])[] = [
  ["find", found("find", false, false)],
  ["rfind", found("rfind", true, false)],
  ["index", found("index", false, true)],
  ["rindex", found("rindex", true, true)],
  ["count", count],
  ["startswith", edge("startswith")],
  ["endswith", edge("endswith")],
  [
    "replace",
    (run, text, args, keywords) => {
      const bound = new Bound("replace", ["old", "new", "count?"], args, keywords);
      return replace(run, text, bound.text("old"), bound.text("new"), bound.integer("count", -1));
    },
  ],
  [
    "removeprefix",
    (_run, text, args, keywords) => {
      const prefix = new Bound("removeprefix", ["prefix"], args, keywords).text("prefix");
      return text.startsWith(prefix) ? text.slice(prefix.length) : text;
    },
  ],
  [
    "removesuffix",
    (_run, text, args, keywords) => {
      const suffix = new Bound("removesuffix", ["suffix"], args, keywords).text("suffix");
      return suffix !== "" && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
    },
  ],
];
