/** `tojson` as transformers defines it: Python's `json.dumps` with `ensure_ascii` off and no HTML escaping. */
import { Bound } from "./bind.ts";
import { iterate } from "./compare.ts";
import { Dict } from "./dict.ts";
import { TemplateError } from "./errors.ts";
import { floatRepr } from "./floats.ts";
import { checkLength, type Run } from "./run.ts";
import { compareText } from "./unicode.ts";
import { type Arguments, type Keywords, List, Tuple, textOf, typeName, type Value } from "./values.ts";

export function toJson(run: Run, value: Value, args: Arguments, keywords: Keywords): string {
  const bound = new Bound("tojson", ["ensure_ascii?", "indent?", "separators?", "sort_keys?"], args, keywords);
  const indent = indentText(bound.value("indent"));
  const [itemSeparator, keySeparator] = separators(bound.value("separators"), indent !== null);
  const writer = new Writer(run, {
    ascii: bound.flag("ensure_ascii", false),
    indent,
    itemSeparator,
    keySeparator,
    sortKeys: bound.flag("sort_keys", false),
  });
  return writer.value(value, "\n");
}

interface Layout {
  readonly ascii: boolean;
  /** Blanks of one level; null: all on one line. */
  readonly indent: string | null;
  readonly itemSeparator: string;
  readonly keySeparator: string;
  readonly sortKeys: boolean;
}

function indentText(value: Value): string | null {
  if (value === null) return null;
  const text = textOf(value);
  if (text !== undefined) return text;
  const count = typeof value === "boolean" ? BigInt(value) : value;
  if (typeof count !== "bigint") throw new TemplateError("tojson: indent must be an integer, a string or none");
  checkLength(Number(count));
  return count > 0n ? " ".repeat(Number(count)) : "";
}

function separators(value: Value, indented: boolean): readonly [string, string] {
  if (value === null) return [indented ? "," : ", ", ": "];
  const [item, key, ...more] = Array.from(iterate(value), textOf);
  if (item === undefined || key === undefined || more.length > 0) {
    throw new TemplateError("tojson: separators must be two strings");
  }
  return [item, key];
}

class Writer {
  private length = 0;

  constructor(
    private readonly run: Run,
    private readonly layout: Layout,
  ) {}

  /** `lineBreak`: the newline and blanks in front of a line of the enclosing level. */
  value(value: Value, lineBreak: string): string {
    this.run.step();
    if (value instanceof Dict) return this.members(value, lineBreak);
    if (value instanceof List || value instanceof Tuple) {
      const inner = lineBreak + (this.layout.indent ?? "");
      const items = value.items.map((item) => this.value(item, inner));
      return this.wrap("[", items, "]", lineBreak);
    }
    const text = textOf(value);
    this.run.charge(text?.length ?? 0);
    if (text !== undefined) return this.counted(quote(text, this.layout.ascii));
    return this.counted(scalar(value) ?? notSerializable(value));
  }

  private members(dict: Dict, lineBreak: string): string {
    const inner = lineBreak + (this.layout.indent ?? "");
    const members = this.entries(dict).map(([key, value]) => {
      const name = quote(keyText(key), this.layout.ascii);
      return this.counted(name + this.layout.keySeparator) + this.value(value, inner);
    });
    return this.wrap("{", members, "}", lineBreak);
  }

  private entries(dict: Dict): (readonly [Value, Value])[] {
    const entries = Array.from(dict.entries());
    if (!this.layout.sortKeys) return entries;
    this.run.charge(entries.length * 16);
    return entries.sort(([left], [right]) => {
      const [a, b] = [textOf(left), textOf(right)];
      if (a !== undefined && b !== undefined) return compareText(a, b);
      if (typeof left === "bigint" && typeof right === "bigint") return left < right ? -1 : 1;
      throw new TemplateError("tojson: keys of different types cannot be sorted");
    });
  }

  private wrap(open: string, parts: readonly string[], close: string, lineBreak: string): string {
    if (parts.length === 0) return this.counted(open + close);
    const { indent, itemSeparator } = this.layout;
    this.length += parts.length * (itemSeparator.length + (indent === null ? 0 : lineBreak.length + indent.length));
    checkLength(this.length);
    if (indent === null) return open + parts.join(itemSeparator) + close;
    const inner = lineBreak + indent;
    return open + inner + parts.join(itemSeparator + inner) + lineBreak + close;
  }

  private counted(text: string): string {
    this.length += text.length;
    checkLength(this.length);
    return text;
  }
}

function scalar(value: Value): string | undefined {
  if (value === null) return "null";
  switch (typeof value) {
    case "boolean":
    case "bigint":
      return value.toString();
    case "number":
      return Number.isFinite(value)
        ? floatRepr(value)
        : Number.isNaN(value)
          ? "NaN"
          : value > 0
            ? "Infinity"
            : "-Infinity";
    default:
      return undefined;
  }
}

function keyText(key: Value): string {
  const text = textOf(key) ?? scalar(key);
  if (text === undefined) throw new TemplateError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
  return text;
}

function notSerializable(value: Value): never {
  throw new TemplateError(`Object of type ${typeName(value)} is not JSON serializable`);
}

const SHORT: Readonly<Record<string, string>> = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\f": "\\f",
  "\b": "\\b",
};
const CONTROL = `\\u0000-\\u001f`;
const ESCAPED = new RegExp(`["\\\\${CONTROL}]`, "g");
const ESCAPED_ASCII = new RegExp(`["\\\\${CONTROL}]|[^ -~]`, "g");

function quote(text: string, ascii: boolean): string {
  const escaped = text.replace(ascii ? ESCAPED_ASCII : ESCAPED, (unit) => SHORT[unit] ?? unicodeEscape(unit));
  return `"${escaped}"`;
}

function unicodeEscape(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
