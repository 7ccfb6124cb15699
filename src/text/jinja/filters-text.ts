/** Filters over text. Their input may be any value; it is taken as `str()` of it. */
import { Bound } from "./bind.ts";
import { lengthOf } from "./compare.ts";
import { Dict } from "./dict.ts";
import { escapeHtml, toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import type { Filter } from "./filters.ts";
import { PIECE_WORK } from "./limits.ts";
import { percentFormat } from "./percent-format.ts";
import { checkLength, type Run } from "./run.ts";
import { capitalize } from "./string-case.ts";
import { center, strip } from "./string-layout.ts";
import { replace } from "./string-search.ts";
import { splitLines } from "./string-split.ts";
import { codePointLength, codePoints } from "./unicode.ts";
import { type Arguments, type Keywords, Markup, Tuple, textOf, typeName, Undefined, type Value } from "./values.ts";
import { wordWrap } from "./word-wrap.ts";

/** A filter of the text alone. Markup stays Markup, as the methods of Python's Markup do. */
const plain =
  (name: string, change: (text: string) => string): Filter =>
  (run, input, args, keywords) => {
    new Bound(name, [], args, keywords);
    const text = toText(input);
    run.charge(text.length * PIECE_WORK);
    const changed = change(text);
    return input instanceof Markup ? new Markup(changed) : changed;
  };

const WORD_STARTS = /([-\s({[<]+)/;

/** Every word's first character in upper case, the rest in lower; words start after blanks, `-` and brackets. */
function title(text: string): string {
  return text
    .split(WORD_STARTS)
    .map((part) => {
      const [first = "", ...rest] = codePoints(part);
      return first.toUpperCase() + rest.join("").toLowerCase();
    })
    .join("");
}

function trim(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const text = toText(input);
  run.charge(text.length);
  return strip(text, new Bound("trim", ["chars?"], args, keywords).textOrNull("chars"), "both");
}

function replaceFilter(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("replace", ["old", "new", "count?"], args, keywords);
  const count = bound.integerOrNull("count") ?? -1;
  return replace(run, toText(input), bound.shown("old", ""), bound.shown("new", ""), count);
}

function charged(run: Run, text: string): string {
  run.charge(text.length);
  return text;
}

function requireText(filter: string, input: Value): string {
  const text = textOf(input);
  if (text !== undefined) return text;
  if (input instanceof Undefined) input.fail();
  throw new TemplateError(`${filter} needs a text, not ${typeName(input)}`);
}

function indent(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("indent", ["width?", "first?", "blank?"], args, keywords);
  const text = requireText("indent", input);
  const width = bound.value("width", 4n);
  const margin = textOf(width) ?? " ".repeat(Math.max(bound.integer("width", 4), 0));
  const indentsBlank = bound.flag("blank", false);
  const lines = splitLines(`${text}\n`);
  run.charge(text.length + lines.length * margin.length);
  checkLength(text.length + lines.length * margin.length);
  const [first = "", ...rest] = lines;
  const indented = rest.map((line) => (line !== "" || indentsBlank ? margin + line : line));
  const result = (bound.flag("first", false) ? margin : "") + [first, ...indented].join("\n");
  return input instanceof Markup ? new Markup(result) : result;
}

function truncate(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("truncate", ["length?", "killwords?", "end?", "leeway?"], args, keywords);
  const length = bound.integer("length", 255);
  const end = bound.text("end", "...");
  const size = lengthOf(input);
  const room = length - codePointLength(end);
  if (room < 0) throw new TemplateError(`truncate: expected length >= ${codePointLength(end)}, got ${length}`);
  if (size <= length + (bound.integerOrNull("leeway") ?? 5)) return input;
  const kept = codePoints(requireText("truncate", input)).slice(0, room).join("");
  if (bound.flag("killwords", false)) return kept + end;
  const lastBlank = kept.lastIndexOf(" ");
  return (lastBlank < 0 ? kept : kept.slice(0, lastBlank)) + end;
}

function wordWrapFilter(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const parameters = ["width?", "break_long_words?", "wrapstring?", "break_on_hyphens?"];
  const bound = new Bound("wordwrap", parameters, args, keywords);
  const text = requireText("wordwrap", input);
  run.charge(text.length * 4);
  return wordWrap(text, {
    width: bound.integer("width", 79),
    breakLongWords: bound.flag("break_long_words", true),
    breakOnHyphens: bound.flag("break_on_hyphens", true),
    lineBreak: bound.textOrNull("wrapstring") ?? "\n",
  });
}

function format(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  if (args.length > 0 && keywords.size > 0) {
    throw new TemplateError("format takes positional or keyword arguments, not both");
  }
  const text = input instanceof Markup ? input : toText(input);
  return percentFormat(run, text, keywords.size > 0 ? new Dict(keywords) : new Tuple(args));
}

function escaped(input: Value): Markup {
  return input instanceof Markup ? input : new Markup(escapeHtml(toText(input)));
}

function centerFilter(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  return center(toText(input), new Bound("center", ["width?"], args, keywords).integer("width", 80));
}

export const textFilters: readonly (readonly [string, Filter])[] = [
  ["upper", plain("upper", (text) => text.toUpperCase())],
  ["lower", plain("lower", (text) => text.toLowerCase())],
  ["capitalize", plain("capitalize", capitalize)],
  ["title", plain("title", title)],
  ["string", (run, input) => (input instanceof Markup ? input : charged(run, toText(input)))],
  ["trim", trim],
  ["replace", replaceFilter],
  ["indent", indent],
  ["truncate", truncate],
  ["center", centerFilter],
  ["wordwrap", wordWrapFilter],
  ["wordcount", (_run, input) => BigInt(toText(input).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0)],
  ["format", format],
  ["safe", (_run, input) => (input instanceof Markup ? input : new Markup(toText(input)))],
  ["escape", (_run, input) => escaped(input)],
  ["e", (_run, input) => escaped(input)],
  ["forceescape", (_run, input) => new Markup(escapeHtml(toText(input)))],
];
