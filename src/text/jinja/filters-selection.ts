/** Filters that take other filters or tests: `map`, `select`, `reject` and their `attr` forms. Lazy, as in Jinja2. */
import { pathReader } from "./attribute-path.ts";
import { iterate, truth } from "./compare.ts";
import { TemplateError } from "./errors.ts";
import { type Filter, findFilter } from "./filters.ts";
import type { Run } from "./run.ts";
import { findTest } from "./tests.ts";
import { type Arguments, type Keywords, Stream, textOf, type Value } from "./values.ts";

function map(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  return new Stream(mapped(run, input, args, keywords));
}

/** Nothing is looked at before the first item is asked for, and nothing at all if the input is false. */
function* mapped(run: Run, input: Value, args: Arguments, keywords: Keywords): Iterable<Value> {
  if (!truth(input)) return;
  const transform = transformation(run, args, keywords);
  for (const item of iterate(input)) {
    run.step();
    yield transform(item);
  }
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

const selection =
  (name: string, keeps: boolean, byAttribute: boolean): Filter =>
  (run, input, args, keywords) =>
    new Stream(selected(run, input, keeps, () => condition(run, name, byAttribute, args, keywords)));

function* selected(run: Run, input: Value, keeps: boolean, prepare: () => (item: Value) => boolean): Iterable<Value> {
  if (!truth(input)) return;
  const holds = prepare();
  for (const item of iterate(input)) {
    run.step();
    if (holds(item) === keeps) yield item;
  }
}

/** The named test of the item or of its attribute; truth itself if no test is named. */
function condition(
  run: Run,
  filter: string,
  byAttribute: boolean,
  args: Arguments,
  keywords: Keywords,
): (item: Value) => boolean {
  const [attribute, name, ...rest] = byAttribute ? args : [null, ...args];
  if (attribute === undefined) throw new TemplateError(`${filter}: missing parameter for attribute name`);
  const read = pathReader(attribute);
  if (name === undefined) return (item) => truth(read(item));
  const test = findTest(textOf(name) ?? "");
  return (item) => test(run, read(item), rest, keywords);
}

export const selectionFilters: readonly (readonly [string, Filter])[] = [
  ["map", map],
  ["select", selection("select", true, false)],
  ["reject", selection("reject", false, false)],
  ["selectattr", selection("selectattr", true, true)],
  ["rejectattr", selection("rejectattr", false, true)],
];
