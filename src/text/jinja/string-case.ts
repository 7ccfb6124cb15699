/** Methods of `str` about letters: case changes and the `is…` questions. */
import { Bound } from "./bind.ts";
import { PIECE_WORK } from "./limits.ts";
import type { Run } from "./run.ts";
import type { StringMethod } from "./string-methods.ts";
import { codePoints, isSpaceCode } from "./unicode.ts";

/** Letters with a title case of their own: DŽ, LJ, NJ, DZ. In each triple the middle one is the title case. */
const TITLE_TRIPLES = "ǄǅǆǇǈǉǊǋǌǱǲǳ";

export function capitalize(text: string): string {
  const [first = "", ...rest] = codePoints(text);
  return titleLetter(first) + rest.join("").toLowerCase();
}

/** Each word's first letter in title case; words are runs of cased letters. */
export function titleCase(text: string): string {
  let previousCased = false;
  return codePoints(text)
    .map((letter) => {
      const changed = previousCased ? letter.toLowerCase() : titleLetter(letter);
      previousCased = isCased(letter);
      return changed;
    })
    .join("");
}

function titleLetter(letter: string): string {
  const triple = letter === "" ? -1 : TITLE_TRIPLES.indexOf(letter);
  if (triple >= 0) return TITLE_TRIPLES[triple - (triple % 3) + 1] ?? letter;
  const [first = "", ...rest] = codePoints(letter.toUpperCase());
  return first + rest.join("").toLowerCase();
}

function isCased(letter: string): boolean {
  return /\p{Cased}/u.test(letter);
}

export function isLower(text: string): boolean {
  return /\p{Lowercase}/u.test(text) && !/[\p{Lu}\p{Lt}]/u.test(text);
}

export function isUpper(text: string): boolean {
  return /\p{Uppercase}/u.test(text) && !/[\p{Ll}\p{Lt}]/u.test(text);
}

function swapCase(text: string): string {
  return codePoints(text)
    .map((letter) => (/\p{Uppercase}/u.test(letter) ? letter.toLowerCase() : letter.toUpperCase()))
    .join("");
}

function isTitle(text: string): boolean {
  let previousCased = false;
  let sawCased = false;
  for (const letter of text) {
    const isUpperLetter = /[\p{Lu}\p{Lt}]/u.test(letter);
    const isLowerLetter = /\p{Ll}/u.test(letter);
    if ((isUpperLetter && previousCased) || (isLowerLetter && !previousCased)) return false;
    previousCased = isUpperLetter || isLowerLetter;
    sawCased ||= previousCased;
  }
  return sawCased;
}

function isSpace(text: string): boolean {
  return text !== "" && codePoints(text).every((character) => isSpaceCode(character.codePointAt(0) ?? 0));
}

/** Superscripts, subscripts and circled digits: digits to Python, though not decimals. */
const DIGITS = /^[\p{Nd}²³¹⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪]+$/u;

const CHANGES: Readonly<Record<string, (text: string) => string>> = {
  capitalize,
  casefold: (text) => text.toLowerCase().replaceAll("ß", "ss").replaceAll("ς", "σ"),
  lower: (text) => text.toLowerCase(),
  swapcase: swapCase,
  title: titleCase,
  upper: (text) => text.toUpperCase(),
};

const QUESTIONS: Readonly<Record<string, (text: string) => boolean>> = {
  isalnum: (text) => /^[\p{L}\p{N}]+$/u.test(text),
  isalpha: (text) => /^\p{L}+$/u.test(text),
  isascii: (text) => codePoints(text).every((character) => (character.codePointAt(0) ?? 0) < 128),
  isdecimal: (text) => /^\p{Nd}+$/u.test(text),
  isdigit: (text) => DIGITS.test(text),
  isidentifier: (text) => /^[\p{ID_Start}_]\p{ID_Continue}*$/u.test(text),
  islower: isLower,
  isnumeric: (text) => /^\p{N}+$/u.test(text),
  isprintable: (text) => !/(?! )[\p{C}\p{Z}]/u.test(text),
  isspace: isSpace,
  istitle: isTitle,
  isupper: isUpper,
};

export const caseMethods: readonly (readonly [string, StringMethod])[] = Object.entries({
  ...CHANGES,
  ...QUESTIONS,
}).map(([name, change]) => [
  name,
  (run: Run, text, args, keywords) => {
    new Bound(name, [], args, keywords);
    run.charge(text.length * PIECE_WORK);
    return change(text);
  },
]);
