/** Filters over sequences and dicts. */
import { getOnlyAttribute } from "./access.ts";
import { keyReader, lowered, pathReader } from "./attribute-path.ts";
import { Bound } from "./bind.ts";
import { compare, equals, iterate, lengthOf, truth } from "./compare.ts";
import { Dict, DictView } from "./dict.ts";
import { toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import type { Filter } from "./filters.ts";
import { add } from "./operators.ts";
import { checkLength, type Run } from "./run.ts";
import { codePoints } from "./unicode.ts";
import {
  type Arguments,
  type Keywords,
  List,
  Range,
  Stream,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

function collect(run: Run, input: Value): Value[] {
  const items: Value[] = [];
  for (const item of iterate(input)) {
    run.step();
    items.push(item);
  }
  return items;
}

function first(_run: Run, input: Value): Value {
  for (const item of iterate(input)) return item;
  return new Undefined("No first item, sequence was empty.");
}

function last(run: Run, input: Value): Value {
  if (!isReversible(input)) throw new TemplateError(`'${typeName(input)}' object is not reversible`);
  const item = collect(run, input).at(-1);
  return item === undefined ? new Undefined("No last item, sequence was empty.") : item;
}

function isReversible(input: Value): boolean {
  return (
    textOf(input) !== undefined ||
    [List, Tuple, Dict, DictView, Range, Undefined].some((Sequence) => input instanceof Sequence)
  );
}

function join(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("join", ["d?", "attribute?"], args, keywords);
  const read = pathReader(bound.value("attribute"));
  const separator = bound.shown("d", "");
  let length = 0;
  const parts = collect(run, input).map((item) => {
    const part = toText(read(item));
    length += part.length + separator.length;
    checkLength(length);
    return part;
  });
  return parts.join(separator);
}

function reverse(run: Run, input: Value): Value {
  const text = textOf(input);
  if (text !== undefined) return codePoints(text).reverse().join("");
  return new Stream(collect(run, input).reverse());
}

/** A stable sort by `key`, ascending unless `descending`. */
function sortBy(run: Run, items: readonly Value[], key: (item: Value) => Value, descending: boolean): Value[] {
  const keyed = items.map((item) => ({ item, key: key(item) }));
  // Python sorts descending by reversing twice, so that equal items keep their order.
  keyed.sort((left, right) => {
    run.step();
    const order = compare("<", left.key, right.key) || 0;
    return descending ? -order : order;
  });
  return keyed.map(({ item }) => item);
}

function sort(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("sort", ["reverse?", "case_sensitive?", "attribute?"], args, keywords);
  const caseSensitive = bound.flag("case_sensitive", false);
  const paths = textOf(bound.value("attribute"))?.split(",") ?? [bound.value("attribute")];
  const readers = paths.map((path) => keyReader(path, caseSensitive));
  const key = (item: Value) => new Tuple(readers.map((read) => read(item)));
  return new List(sortBy(run, collect(run, input), key, bound.flag("reverse", false)));
}

function dictSort(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("dictsort", ["case_sensitive?", "by?", "reverse?"], args, keywords);
  const by = bound.text("by", "key");
  if (by !== "key" && by !== "value") throw new TemplateError('dictsort: you can only sort by either "key" or "value"');
  if (input instanceof Undefined) input.fail();
  if (!(input instanceof Dict)) throw new TemplateError(`'${typeName(input)}' object has no items`);
  const caseSensitive = bound.flag("case_sensitive", false);
  const key = (pair: Value) => {
    const part = pair instanceof Tuple ? (pair.items[by === "key" ? 0 : 1] ?? null) : null;
    return caseSensitive ? part : lowered(part);
  };
  const pairs = Array.from(input.entries(), ([name, value]) => new Tuple([name, value]));
  return new List(sortBy(run, pairs, key, bound.flag("reverse", false)));
}

const extreme =
  (name: "min" | "max"): Filter =>
  (run, input, args, keywords) => {
    const bound = new Bound(name, ["case_sensitive?", "attribute?"], args, keywords);
    const key = keyReader(bound.value("attribute"), bound.flag("case_sensitive", false));
    const [head, ...rest] = collect(run, input);
    if (head === undefined) return new Undefined("No aggregated item, sequence was empty.");
    const operator = name === "min" ? "<" : ">";
    return rest.reduce((best, item) => {
      const order = compare(operator, key(item), key(best));
      return (name === "min" ? order < 0 : order > 0) ? item : best;
    }, head);
  };

function sum(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("sum", ["attribute?", "start?"], args, keywords);
  const read = pathReader(bound.value("attribute"));
  const start = bound.value("start", 0n);
  if (textOf(start) !== undefined) throw new TemplateError("sum() can't sum strings, use join instead");
  return collect(run, input).reduce((total: Value, item) => add(run, total, read(item)), start);
}

function unique(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("unique", ["case_sensitive?", "attribute?"], args, keywords);
  const key = keyReader(bound.value("attribute"), bound.flag("case_sensitive", false));
  const items = new Map<Value, Value>();
  const distinct: Value[] = [];
  for (const item of collect(run, input)) {
    const before = items.size;
    const seen = new Dict([[key(item), true]]);
    for (const hashed of seen.keys()) if (!hasEqual(run, items, hashed)) items.set(hashed, item);
    if (items.size > before) distinct.push(item);
  }
  return new Stream(distinct);
}

function hasEqual(run: Run, items: ReadonlyMap<Value, Value>, key: Value): boolean {
  if (items.has(key)) return true;
  if (typeof key === "string") return false;
  run.charge(items.size);
  return Array.from(items.keys()).some((known) => equals(known, key));
}

/** A group is a pair that also answers to `grouper` and `list`. */
class Group extends Tuple {
  constructor(
    readonly grouper: Value,
    readonly members: List,
  ) {
    super([grouper, members]);
  }

  override attribute(name: string): Value | undefined {
    return name === "grouper" ? this.grouper : name === "list" ? this.members : undefined;
  }
}

function groupBy(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("groupby", ["attribute", "default?", "case_sensitive?"], args, keywords);
  const path = bound.value("attribute");
  const fallback = bound.optional("default");
  const key = keyReader(path, bound.flag("case_sensitive", false), fallback);
  const shown = pathReader(path, fallback);
  const groups: { key: Value; items: Value[] }[] = [];
  for (const item of sortBy(run, collect(run, input), key, false)) {
    const current = groups.at(-1);
    if (current !== undefined && equals(current.key, key(item))) current.items.push(item);
    else groups.push({ key: key(item), items: [item] });
  }
  return new List(groups.map(({ items }) => new Group(shown(items[0] ?? null), new List(items))));
}

function batch(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("batch", ["linecount", "fill_with?"], args, keywords);
  const size = bound.integer("linecount");
  const fill = bound.value("fill_with");
  const items = collect(run, input);
  const rows: Value[][] = [];
  for (const item of items) {
    const row = rows.at(-1);
    if (row !== undefined && row.length !== size) row.push(item);
    else rows.push([item]);
  }
  const tail = rows.at(-1);
  if (fill !== null && tail !== undefined && tail.length < size) {
    run.charge(size);
    checkLength(size);
    tail.push(...Array.from({ length: size - tail.length }, () => fill));
  }
  return new Stream(rows.map((row) => new List(row)));
}

function slice(run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("slice", ["slices", "fill_with?"], args, keywords);
  const count = bound.integer("slices");
  const fill = bound.value("fill_with");
  const items = collect(run, input);
  if (count === 0) throw new TemplateError("division by zero");
  const size = Math.floor(items.length / count);
  const extra = items.length % count;
  run.charge(Math.max(count, 0));
  checkLength(count);
  return new Stream(
    Array.from({ length: Math.max(count, 0) }, (_unused, index) => {
      const start = index * size + Math.min(index, extra);
      const column = items.slice(start, start + size + (index < extra ? 1 : 0));
      return new List(fill !== null && index >= extra ? [...column, fill] : column);
    }),
  );
}

function items(_run: Run, input: Value): Value {
  if (input instanceof Undefined) return new Stream([]);
  if (!(input instanceof Dict)) throw new TemplateError("can only get item pairs from a mapping");
  return new Stream(new DictView(input, "items").items());
}

function fallbackFor(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("default", ["default_value?", "boolean?"], args, keywords);
  const isAbsent = input instanceof Undefined || (bound.flag("boolean", false) && !truth(input));
  return isAbsent ? bound.value("default_value", "") : input;
}

function attribute(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  return getOnlyAttribute(input, new Bound("attr", ["name"], args, keywords).shown("name", ""));
}

export const sequenceFilters: readonly (readonly [string, Filter])[] = [
  ["first", first],
  ["last", last],
  ["length", (_run, input) => BigInt(lengthOf(input))],
  ["count", (_run, input) => BigInt(lengthOf(input))],
  ["list", (run, input) => new List(collect(run, input))],
  ["join", join],
  ["reverse", reverse],
  ["sort", sort],
  ["dictsort", dictSort],
  ["min", extreme("min")],
  ["max", extreme("max")],
  ["sum", sum],
  ["unique", unique],
  ["groupby", groupBy],
  ["batch", batch],
  ["slice", slice],
  ["items", items],
  ["default", fallbackFor],
  ["d", fallbackFor],
  ["attr", attribute],
];
