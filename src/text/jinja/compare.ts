/** Equality, order, membership, truth, iteration and length, as Python defines them over its types. */
import { Dict, DictView } from "./dict.ts";
import { TemplateError } from "./errors.ts";
import { numberOf } from "./operators.ts";
import type { Run } from "./run.ts";
import { codePointLength, codePoints, compareText } from "./unicode.ts";
import {
  List,
  Markup,
  Namespace,
  PyObject,
  Range,
  Stream,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

export function equals(left: Value, right: Value): boolean {
  if (left === right) return !Number.isNaN(left);
  const a = numberOf(left);
  const b = numberOf(right);
  // Loose equality of a bigint and a number is exact, like Python's.
  // biome-ignore lint/suspicious/noDoubleEquals: mixed comparison of bigint and number is intended
  if (a !== undefined || b !== undefined) return a !== undefined && b !== undefined && a == b;
  if (left instanceof Markup || right instanceof Markup) return textOf(left) === textOf(right);
  if (!(left instanceof PyObject) || !(right instanceof PyObject)) return false;
  if (left instanceof Undefined) return right instanceof Undefined;
  if (left instanceof List) return right instanceof List && sameItems(left.items, right.items);
  if (left instanceof Tuple) return right instanceof Tuple && sameItems(left.items, right.items);
  if (left instanceof Dict) return right instanceof Dict && sameEntries(left, right);
  if (left instanceof Range && right instanceof Range) {
    return sameItems(Array.from(iterate(left)), Array.from(iterate(right)));
  }
  return false;
}

function sameItems(left: readonly Value[], right: readonly Value[]): boolean {
  return left.length === right.length && left.every((item, index) => equals(item, right[index] ?? null));
}

function sameEntries(left: Dict, right: Dict): boolean {
  if (left.size !== right.size) return false;
  for (const [key, value] of left.entries()) {
    const other = right.get(key);
    if (other === undefined || !equals(value, other)) return false;
  }
  return true;
}

export type OrderOperator = "<" | "<=" | ">" | ">=";

export function ordered(operator: OrderOperator, left: Value, right: Value): boolean {
  const order = compare(operator, left, right);
  switch (operator) {
    case "<":
      return order < 0;
    case "<=":
      return order <= 0;
    case ">":
      return order > 0;
    case ">=":
      return order >= 0;
  }
}

/** Negative, 0, positive; NaN when a float is NaN. Throws for types without order; `operator` is for the message. */
export function compare(operator: OrderOperator, left: Value, right: Value): number {
  const a = numberOf(left);
  const b = numberOf(right);
  if (a !== undefined && b !== undefined)
    return a < b ? -1 : a > b ? 1 : Number.isNaN(a) || Number.isNaN(b) ? Number.NaN : 0;
  const leftText = textOf(left);
  const rightText = textOf(right);
  if (leftText !== undefined && rightText !== undefined) return compareText(leftText, rightText);
  if (left instanceof Undefined) left.fail();
  if (right instanceof Undefined) right.fail();
  const areSequences =
    (left instanceof List && right instanceof List) || (left instanceof Tuple && right instanceof Tuple);
  if (areSequences) return compareItems(operator, left.items, right.items);
  throw new TemplateError(
    `'${operator}' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`,
  );
}

function compareItems(operator: OrderOperator, left: readonly Value[], right: readonly Value[]): number {
  for (const [index, item] of left.entries()) {
    const other = right[index];
    if (other === undefined) return 1;
    if (!equals(item, other)) return compare(operator, item, other);
  }
  return left.length - right.length;
}

/** `item in container`. */
export function contains(run: Run, container: Value, item: Value): boolean {
  const text = textOf(container);
  if (text !== undefined) {
    const part = textOf(item);
    if (item instanceof Undefined) item.fail();
    if (part === undefined) {
      throw new TemplateError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    }
    run.charge(text.length);
    return text.includes(part);
  }
  if (container instanceof Dict) return container.has(item);
  if (container instanceof DictView && container.kind === "keys") return container.dict.has(item);
  if (!isIterable(container)) throw new TemplateError(`argument of type '${typeName(container)}' is not iterable`);
  for (const candidate of iterate(container)) {
    run.step();
    if (equals(candidate, item)) return true;
  }
  return false;
}

/** Whether a condition holds. */
export function truth(value: Value): boolean {
  if (value === null) return false;
  switch (typeof value) {
    case "boolean":
      return value;
    case "bigint":
      return value !== 0n;
    case "number":
      return value !== 0;
    case "string":
      return value !== "";
  }
  return sizeOf(value) !== 0;
}

/** `len(value)` where there is one. */
export function sizeOf(value: Value): number | undefined {
  if (typeof value === "string") return codePointLength(value);
  if (!(value instanceof PyObject)) return undefined;
  if (value instanceof Markup) return codePointLength(value.text);
  if (value instanceof List || value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Range) return value.length;
  return value instanceof Undefined ? 0 : undefined;
}

export function lengthOf(value: Value): number {
  const size = sizeOf(value);
  if (size === undefined) throw new TemplateError(`object of type '${typeName(value)}' has no len()`);
  return size;
}

export function isIterable(value: Value): boolean {
  return value instanceof Stream || sizeOf(value) !== undefined;
}

/** The items of a sequence, keys of a dict, characters of a text. Throws for anything that is not iterable. */
export function iterate(value: Value): Iterable<Value> {
  if (value instanceof List || value instanceof Tuple) return value.items;
  if (value instanceof Dict) return value.keys();
  if (value instanceof DictView) return value.items();
  if (value instanceof Range) return rangeItems(value);
  if (value instanceof Stream) return { [Symbol.iterator]: () => openIterator(value.iterator) };
  const text = textOf(value);
  if (text !== undefined) return codePoints(text);
  if (value instanceof Undefined) return [];
  throw new TemplateError(`'${typeName(value)}' object is not iterable`);
}

function* rangeItems(range: Range): Iterable<Value> {
  for (let index = 0; index < range.length; index += 1) yield range.at(index);
}

/** The iterator without `return`, so that leaving a loop early leaves the rest of a stream for the next one. */
function openIterator(iterator: Iterator<Value>): Iterator<Value> {
  return { next: () => iterator.next() };
}

/** Whether two values are the same object (`is`). Scalars are the same when they are equal and of one type. */
export function identical(left: Value, right: Value): boolean {
  if (left instanceof Namespace || left instanceof PyObject) return left === right;
  return Object.is(left, right);
}
