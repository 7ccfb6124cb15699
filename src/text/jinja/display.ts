/** `str()` and `repr()` of Python. */
import { Dict, DictView } from "./dict.ts";
import { floatRepr } from "./floats.ts";
import { List, Markup, Namespace, Tuple, Undefined, type Value } from "./values.ts";

/** `str(value)`: what `{{ value }}` prints. */
export function toText(value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  return value instanceof Undefined ? "" : repr(value);
}

/** `repr(value)`: as `str`, but with quotes around text. */
export function repr(value: Value): string {
  if (value === null) return "None";
  switch (typeof value) {
    case "boolean":
      return value ? "True" : "False";
    case "bigint":
      return value.toString();
    case "number":
      return floatRepr(value);
    case "string":
      return quote(value);
  }
  if (value instanceof List) return `[${value.items.map(repr).join(", ")}]`;
  if (value instanceof Tuple) return `(${value.items.map(repr).join(", ")}${value.items.length === 1 ? "," : ""})`;
  if (value instanceof Dict) return entriesText(value.entries());
  if (value instanceof DictView) return `${value.typeName}([${Array.from(value.items(), repr).join(", ")}])`;
  if (value instanceof Namespace) return `<Namespace ${entriesText(value.members)}>`;
  if (value instanceof Markup) return `Markup(${quote(value.text)})`;
  return value.display();
}

function entriesText(entries: Iterable<readonly [Value, Value]>): string {
  return `{${Array.from(entries, ([key, value]) => `${repr(key)}: ${repr(value)}`).join(", ")}}`;
}

const ESCAPES: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
/** Python's unprintable characters: categories Other and Separator, but for the blank. */
const UNPRINTABLE = /[\\]|(?! )[\p{C}\p{Z}]/gu;

function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(UNPRINTABLE, (character) => ESCAPES[character] ?? escapeCode(character));
  return mark + (mark === "'" ? escaped.replaceAll("'", "\\'") : escaped) + mark;
}

function escapeCode(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  const hex = code.toString(16);
  if (code <= 0xff) return `\\x${hex.padStart(2, "0")}`;
  return code <= 0xffff ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

const HTML: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;" };

/** Text with the five HTML characters escaped. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>'"]/g, (character) => HTML[character] ?? character);
}
