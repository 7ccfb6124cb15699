/** Methods of `str`. Positions and lengths count code points. */
import { Bound } from "./bind.ts";
import { braceFormat } from "./brace-format.ts";
import { iterate } from "./compare.ts";
import { escapeHtml, toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { checkLength, type Run } from "./run.ts";
import { caseMethods } from "./string-case.ts";
import { layoutMethods } from "./string-layout.ts";
import { searchMethods } from "./string-search.ts";
import { splitMethods } from "./string-split.ts";
import {
  type Arguments,
  Callable,
  type Keywords,
  List,
  Markup,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

export type StringMethod = (run: Run, text: string, args: Arguments, keywords: Keywords) => Value;

const METHODS: ReadonlyMap<string, StringMethod> = new Map([
  ...caseMethods,
  ...layoutMethods,
  ...searchMethods,
  ...splitMethods,
  ["join", join],
  ["format", braceFormat],
]);

/** The method bound to `text`, undefined if `str` has none of that name. Methods of Markup give Markup. */
export function stringMethod(text: string | Markup, name: string): Callable | undefined {
  const method = METHODS.get(name);
  if (method === undefined) return undefined;
  if (typeof text === "string") {
    return new Callable(name, (run, args, keywords) => method(run, text, args, keywords));
  }
  return new Callable(name, (run, args, keywords) => {
    const escapes = name === "join" || name === "format" || name === "replace";
    return marked(method(run, text.text, escapes ? args.map(escaped) : args, keywords));
  });
}

function marked(value: Value): Value {
  if (typeof value === "string") return new Markup(value);
  if (value instanceof List) return new List(value.items.map(marked));
  return value instanceof Tuple ? new Tuple(value.items.map(marked)) : value;
}

function escaped(value: Value): Value {
  if (typeof value === "string") return escapeHtml(value);
  if (value instanceof List || value instanceof Tuple) return new List(value.items.map((item) => escaped(item)));
  return value;
}

function join(run: Run, text: string, args: Arguments, keywords: Keywords): Value {
  const parts: string[] = [];
  let length = 0;
  for (const item of iterate(new Bound("join", ["iterable"], args, keywords).value("iterable"))) {
    run.step();
    const part = textOf(item);
    if (item instanceof Undefined) item.fail();
    if (part === undefined) {
      throw new TemplateError(`sequence item ${parts.length}: expected str instance, ${typeName(item)} found`);
    }
    length += part.length + text.length;
    checkLength(length);
    parts.push(part);
  }
  return parts.join(toText(text));
}
