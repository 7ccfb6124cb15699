/**
 * Attributes, items and slices, with the sandbox: only the methods listed in this folder exist, those that would
 * change a list or dict are refused, and so is everything with two leading underscores.
 */
import { clampIndex } from "./bind.ts";
import { collectionMethod } from "./collection-methods.ts";
import { Dict, DictView } from "./dict.ts";
import { repr } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { numberOf } from "./operators.ts";
import type { Run } from "./run.ts";
import { stringMethod } from "./string-methods.ts";
import { codePointLength, codePoints, isFlat } from "./unicode.ts";
import {
  Callable,
  firstPresent,
  List,
  Markup,
  PyObject,
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

const CHANGING: Readonly<Record<string, readonly string[]>> = {
  list: ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"],
  dict: ["clear", "pop", "popitem", "setdefault", "update"],
};

/** `object.name`: attributes first, then items. */
export function getAttribute(object: Value, name: string): Value {
  if (object instanceof Undefined) object.fail();
  const found = firstPresent(ownAttribute(object, name), () => item(object, name));
  return found === undefined ? missing(object, name) : found;
}

/** `object[index]`: items first, then attributes. */
export function getItem(object: Value, index: Value): Value {
  if (object instanceof Undefined) object.fail();
  const found = item(object, index);
  if (found !== undefined) return found;
  const name = textOf(index);
  const attribute = name === undefined ? undefined : ownAttribute(object, name);
  return attribute === undefined ? missing(object, index) : attribute;
}

/** The attribute alone, without looking at items (`attr` filter). */
export function getOnlyAttribute(object: Value, name: string): Value {
  if (object instanceof Undefined) object.fail();
  const found = ownAttribute(object, name);
  return found === undefined ? missing(object, name) : found;
}

function ownAttribute(object: Value, name: string): Value | undefined {
  if (name.startsWith("__") || CHANGING[typeName(object)]?.includes(name) === true) {
    return object instanceof Dict && object.has(name)
      ? undefined
      : new Undefined(`access to attribute '${name}' of '${typeName(object)}' object is unsafe.`);
  }
  if (typeof object === "string" || object instanceof Markup) return stringMethod(object, name);
  if (object instanceof List || object instanceof Tuple || object instanceof Dict || object instanceof Range) {
    return firstPresent(object.attribute(name), () => collectionMethod(object, name));
  }
  if (object instanceof PyObject) return object.attribute(name);
  return numberAttribute(object, name);
}

function numberAttribute(object: Value, name: string): Value | undefined {
  const number = numberOf(object);
  if (number === undefined) return undefined;
  if (name === "real") return number;
  if (name === "imag") return typeof number === "bigint" ? 0n : 0;
  if (name === "is_integer" && typeof number === "number") return new Callable(name, () => Number.isInteger(number));
  if (typeof number !== "bigint") return undefined;
  return name === "numerator" ? number : name === "denominator" ? 1n : undefined;
}

function item(object: Value, index: Value): Value | undefined {
  if (object instanceof Dict) return isHashable(index) ? object.get(index) : undefined;
  const number = typeof index === "boolean" ? BigInt(index) : index;
  if (typeof number !== "bigint") return undefined;
  const position = clampIndex(number);
  if (object instanceof List || object instanceof Tuple) return object.items.at(position);
  if (object instanceof Range) {
    const at = position < 0 ? position + object.length : position;
    return at >= 0 && at < object.length ? object.at(at) : undefined;
  }
  const text = textOf(object);
  if (text === undefined) return undefined;
  const found = isFlat(text) ? text.at(position) : codePoints(text).at(position);
  return found !== undefined && object instanceof Markup ? new Markup(found) : found;
}

function isHashable(key: Value): boolean {
  if (key instanceof Tuple) return key.items.every(isHashable);
  return !(key instanceof List || key instanceof Dict || key instanceof DictView);
}

function missing(object: Value, key: Value): Undefined {
  const owner = object === null ? "None" : `${typeName(object)} object`;
  const name = textOf(key);
  return new Undefined(
    name === undefined ? `${owner} has no element ${repr(key)}` : `'${owner}' has no attribute '${name}'`,
  );
}

/** `object[start:stop:step]`; bounds are ints, None or absent. */
export function getSlice(run: Run, object: Value, start: Value, stop: Value, step: Value): Value {
  if (object instanceof Undefined) object.fail();
  const stride = bound(step) ?? 1;
  const from = bound(start);
  const to = bound(stop);
  if (stride === "bad" || from === "bad" || to === "bad")
    throw new TemplateError("slice indices must be integers or None");
  const text = textOf(object);
  if (text !== undefined) {
    const sliced = sliceText(run, text, from, to, stride);
    return object instanceof Markup ? new Markup(sliced) : sliced;
  }
  if (object instanceof List) return new List(sliceItems(run, object.items, from, to, stride));
  if (object instanceof Tuple) return new Tuple(sliceItems(run, object.items, from, to, stride));
  if (object instanceof Range) return sliceRange(object, from, to, stride);
  throw new TemplateError(`'${typeName(object)}' object is not subscriptable by a slice`);
}

function bound(value: Value): number | null | "bad" {
  if (value === null) return null;
  const number = typeof value === "boolean" ? BigInt(value) : value;
  return typeof number === "bigint" ? clampIndex(number) : "bad";
}

function sliceText(run: Run, text: string, from: number | null, to: number | null, step: number): string {
  if (step === 1) {
    if (isFlat(text)) return text.slice(from ?? 0, to ?? text.length);
    const length = codePointLength(text);
    if ((from ?? 0) === 0 && (to ?? length) >= length) return text;
  }
  return sliceItems(run, codePoints(text), from, to, step).join("");
}

function sliceItems<T>(run: Run, items: readonly T[], from: number | null, to: number | null, step: number): T[] {
  run.charge(items.length);
  if (step === 1) return items.slice(from ?? 0, to ?? items.length);
  const [first, last] = range(items.length, from, to, step);
  const taken: T[] = [];
  for (let index = first; step > 0 ? index < last : index > last; index += step) {
    const item = items[index];
    if (item !== undefined) taken.push(item);
  }
  return taken;
}

function sliceRange(object: Range, from: number | null, to: number | null, step: number): Range {
  const [first, last] = range(object.length, from, to, step);
  return new Range(object.at(first), object.at(last), object.step * BigInt(step));
}

/** First index and the one before which to stop, after Python's clipping. */
function range(length: number, from: number | null, to: number | null, step: number): [number, number] {
  if (step === 0) throw new TemplateError("slice step cannot be zero");
  const low = step > 0 ? 0 : -1;
  const high = step > 0 ? length : length - 1;
  const clip = (index: number) => Math.min(Math.max(index < 0 ? index + length : index, low), high);
  return [from === null ? (step > 0 ? low : high) : clip(from), to === null ? (step > 0 ? high : low) : clip(to)];
}
