/**
 * How a value is written: JSON (answers, Hermes), Python literals (LFM2), Gemma's own notation. One table each; the writer
 * of schemas knows no other difference.
 */
import { ANYTHING, type CharSet, charSet, charsOf, difference, union } from "./charset.ts";
import { isJsonArray, isJsonObject, type Json } from "./json-tree.ts";
import { literal, type Rules } from "./rules.ts";
import { literalText, type TextForm } from "./text-form.ts";

/** Fragments around the elements of a list, and of one without any. */
export interface Brackets {
  readonly open: string;
  readonly close: string;
  readonly empty: string;
}

const BRACES: Brackets = { open: literal("{"), close: literal("}"), empty: literal("{}") };
const SQUARE: Brackets = { open: literal("["), close: literal("]"), empty: literal("[]") };

/** How the members of an object are written. */
export interface MemberForm {
  readonly object: Brackets;
  readonly comma: string;
  /** Between a free name and its value. */
  readonly colon: string;
  /** The name of a member as a fragment, with what separates it from the value; null: it cannot be written. */
  key(name: string): string | null;
  /** Names of members, where any name may stand. */
  readonly keyText: TextForm;
  /** Members are written in the order of their names. */
  readonly sorted: boolean;
}

export interface Dialect extends MemberForm {
  readonly name: "json" | "spaced" | "markup" | "python" | "gemma4";
  /** Strings; the first is used where the content is constrained, any where it is not. */
  readonly texts: readonly [TextForm, ...TextForm[]];
  readonly array: Brackets;
  readonly words: { readonly true: string; readonly false: string; readonly null: string };
  /** Further spellings of booleans and of null that the reader takes. */
  readonly otherBooleans: readonly string[];
  readonly otherNulls: readonly string[];
}

const ONE_SPELLING = { otherBooleans: [], otherNulls: [] };

/** Characters that are markers to the grammar (`ConstraintSpec.markers`), and NUL. */
export const RESERVED: CharSet = charSet([[0, 8]]);

const CONTROLS = charSet([[0, 0x1f]]);

function escapes(table: Readonly<Record<string, string>>): ReadonlyMap<number, string> {
  return new Map(Object.entries(table).map(([character, letter]) => [character.charCodeAt(0), letter]));
}

function textForm(
  quote: string,
  table: Readonly<Record<string, string>>,
  follow: string,
  anyEscape: TextForm["anyEscape"] = null,
): TextForm {
  const map = escapes(table);
  const escaped = charsOf(Object.keys(table).join(""));
  const plain = difference(difference(ANYTHING, CONTROLS), escaped);
  const fragment = literal(quote);
  return {
    open: fragment,
    close: fragment,
    alphabet: union(plain, escaped),
    plain,
    escapes: map,
    anyEscape,
    follow,
    forbidden: "",
  };
}

/** Behind a backslash in JSON; surrogates in pairs only. */
function jsonEscape(rules: Rules): string {
  return rules.once("escape", (name) => {
    const hex = "[0-9a-fA-F]";
    const unicode = rules.define(rules.name("unicode"), [
      `[0-9a-cefA-CEF] ${hex} ${hex} ${hex}`,
      `[dD] [0-7] ${hex} ${hex}`,
      `[dD] [89abAB] ${hex} ${hex} "\\\\u" [dD] [c-fC-F] ${hex} ${hex}`,
    ]);
    rules.define(name, ['["\\\\/bfnrt]', `"u" ${unicode}`]);
  });
}

const JSON_TABLE = { '"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t" };

/** JSON with `", "` and `": "` and no other blanks: the one form that models write without being asked. */
export const JSON_DIALECT: Dialect = {
  ...jsonDialect(",}]:", literal(": ")),
  object: BRACES,
  array: SQUARE,
  comma: literal(", "),
};

/** JSON with a gap, a rule that may be empty, wherever a blank may stand. */
export function spacedJsonDialect(gap: string, follow: string): Dialect {
  const spaced = (open: string, close: string): Brackets => ({
    open: `${literal(open)} ${gap}`,
    close: `${gap} ${literal(close)}`,
    empty: `${literal(open)} ${gap} ${literal(close)}`,
  });
  const object = spaced("{", "}");
  return { ...jsonDialect(follow, `":" ${gap}`), name: "spaced", object, array: spaced("[", "]"), comma: `"," ${gap}` };
}

/** JSON inside of markup. @param tag the closing tag, which no string may hold */
export function markupJsonDialect(tag: string): Dialect {
  const [json] = JSON_DIALECT.texts;
  const text: TextForm = { ...json, forbidden: tag };
  return { ...JSON_DIALECT, name: "markup", texts: [text], keyText: text };
}

function jsonDialect(follow: string, colon: string): Omit<Dialect, "object" | "array" | "comma"> {
  const text = textForm('"', JSON_TABLE, follow, jsonEscape);
  return {
    name: "json",
    texts: [text],
    keyText: text,
    key: (name) => (name.isWellFormed() ? `${literal(JSON.stringify(name))} ${colon}` : null),
    colon,
    sorted: false,
    words: { true: "true", false: "false", null: "null" },
    ...ONE_SPELLING,
  };
}

const PYTHON_TABLE = { "\\": "\\", "\n": "n", "\t": "t", "\r": "r" };
const PYTHON_FOLLOW = ",)]}:";
const SINGLE = withRawTabs(textForm("'", { ...PYTHON_TABLE, "'": "'" }, PYTHON_FOLLOW));
const DOUBLE = withRawTabs(textForm('"', { ...PYTHON_TABLE, '"': '"' }, PYTHON_FOLLOW));

/** A tab stands for itself, too: templates print it so. */
function withRawTabs(form: TextForm): TextForm {
  return { ...form, plain: union(form.plain, charsOf("\t")) };
}

export const PYTHON_DIALECT: Dialect = {
  name: "python",
  // The quotes that the models' template writes come first.
  texts: [SINGLE, DOUBLE],
  // Templates print mappings as JSON, even here.
  keyText: DOUBLE,
  key: (name) => {
    const text = literalText(name, DOUBLE);
    return text === null ? null : `${text} ${literal(": ")}`;
  },
  object: BRACES,
  array: SQUARE,
  comma: literal(", "),
  colon: literal(": "),
  sorted: false,
  words: { true: "True", false: "False", null: "None" },
  otherBooleans: ["true", "false"],
  otherNulls: ["null"],
};

/** Names are bare in Gemma's notation: letters, digits, `_` and `-`, as its parser reads them. */
export const BARE_NAME = /^[\w-]+$/;

const DELIMITER = '<|"|>';

/** @param delimiter the fragment of `<|"|>` */
export function gemmaDialect(delimiter: string): Dialect {
  const plain = difference(ANYTHING, RESERVED);
  const text: TextForm = {
    open: delimiter,
    close: delimiter,
    alphabet: plain,
    plain,
    escapes: new Map(),
    anyEscape: null,
    follow: "",
    forbidden: DELIMITER,
  };
  return {
    name: "gemma4",
    texts: [text],
    keyText: bareText("", NAME_CHARACTERS),
    key: (name) => (BARE_NAME.test(name) ? literal(`${name}:`) : null),
    object: BRACES,
    array: SQUARE,
    comma: literal(","),
    colon: literal(":"),
    sorted: true,
    words: { true: "true", false: "false", null: "null" },
    ...ONE_SPELLING,
  };
}

/** Text without escapes, and without anything behind it. */
export function bareText(open: string, alphabet: CharSet): TextForm {
  return { open, close: "", alphabet, plain: alphabet, escapes: new Map(), anyEscape: null, follow: "", forbidden: "" };
}

/** Names that any syntax can write. */
export const NAME_CHARACTERS = charSet([
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x61, 0x7a],
  [0x5f, 0x5f],
  [0x2d, 0x2d],
]);

/** A constant as a fragment; null: the dialect cannot write it. */
export function literalValue(value: Json, dialect: Dialect): string | null {
  if (value === null) return literal(dialect.words.null);
  if (typeof value === "boolean") return literal(value ? dialect.words.true : dialect.words.false);
  if (typeof value === "number") return literal(JSON.stringify(value));
  if (typeof value === "string") {
    if (dialect.name === "json" || dialect.name === "spaced")
      return value.isWellFormed() ? literal(JSON.stringify(value)) : null;
    return literalText(value, dialect.texts[0]);
  }
  if (isJsonArray(value)) {
    return joined(
      value.map((item) => literalValue(item, dialect)),
      dialect.array,
      dialect.comma,
    );
  }
  if (!isJsonObject(value)) return null;
  const entries = Array.from(value);
  if (dialect.sorted) entries.sort(([a], [b]) => compareNames(a, b));
  const members = entries.map(([name, item]) => {
    const [key, text] = [dialect.key(name), literalValue(item, dialect)];
    return key === null || text === null ? null : `${key} ${text}`;
  });
  return joined(members, dialect.object, dialect.comma);
}

function joined(parts: readonly (string | null)[], { open, close, empty }: Brackets, comma: string): string | null {
  if (parts.includes(null)) return null;
  if (parts.length === 0) return empty;
  return [open, parts.join(` ${comma} `), close].filter((part) => part !== "").join(" ");
}

/** As Jinja's `dictsort` orders names: without regard to case. */
export function compareNames(a: string, b: string): number {
  const [x, y] = [a.toLowerCase(), b.toLowerCase()];
  return x < y ? -1 : x > y ? 1 : 0;
}
