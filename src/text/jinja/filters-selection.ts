/** Filters that take other filters or tests: `map`, `select`, `reject` and their `attr` forms. Lazy, as in Jinja2. */
import { pathReader } from "./attribute-path.ts";
import { iterate, truth } from "./compare.ts";
import { TemplateError } from "./errors.ts";
import { type Filter, findFilter } from "./filters.ts";
import type { Run } from "./run.ts";
import { findTest } from "./tests.ts";
import { type Arguments, type Keywords, Stream, textOf, Undefined, type Value } from "./values.ts";

function map(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  return lazily(run, input, transformation(run, args, keywords));
}

function transformation(run: Run, args: Arguments, keywords: Keywords): (item: Value) => Value {
  const attribute = keywords.get("attribute");
  if (args.length === 0 && attribute !== undefined) {
    const unknown = Array.from(keywords.keys()).find((name) => name !== "attribute" && name !== "default");
    if (unknown !== undefined) throw new TemplateError(`map: unexpected keyword argument '${unknown}'`);
    return pathReader(attribute, keywords.get("default") ?? undefined);
  }
  const [name, ...rest] = args;
  if (name === undefined) throw new TemplateError("map requires a filter argument");
  const filter = findFilter(textOf(name) ?? "");
  return (item) => filter(run, item, rest, keywords);
}

function lazily(run: Run, input: Value, transform: (item: Value) => Value): Value {
  const items = input instanceof Undefined || input === null ? [] : iterate(input);
  return new Stream(
    (function* () {
      for (const item of items) {
        run.step();
        yield transform(item);
      }
    })(),
  );
}

const selection =
  (name: string, keeps: boolean, byAttribute: boolean): Filter =>
  (run, input, args, keywords) => {
    const [attribute, ...rest] = byAttribute ? args : [null, ...args];
    if (attribute === undefined) throw new TemplateError(`${name}: missing parameter for attribute name`);
    const read = pathReader(attribute);
    const holds = condition(run, rest, keywords);
    const items = input instanceof Undefined || input === null ? [] : iterate(input);
    return new Stream(
      (function* () {
        for (const item of items) {
          run.step();
          if (holds(read(item)) === keeps) yield item;
        }
      })(),
    );
  };

/** The named test, or truth itself if none is named. */
function condition(run: Run, args: Arguments, keywords: Keywords): (item: Value) => boolean {
  const [name, ...rest] = args;
  if (name === undefined) return truth;
  const test = findTest(textOf(name) ?? "");
  return (item) => test(run, item, rest, keywords);
}

export const selectionFilters: readonly (readonly [string, Filter])[] = [
  ["map", map],
  ["select", selection("select", true, false)],
  ["reject", selection("reject", false, false)],
  ["selectattr", selection("selectattr", true, true)],
  ["rejectattr", selection("rejectattr", false, true)],
];
