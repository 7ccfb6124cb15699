/** JavaScript and JSON values → Python values. Numbers written with a point or exponent become floats. */
import { JsonNumber } from "../json-numbers.ts";
import { Dict } from "./dict.ts";
import { TemplateError } from "./errors.ts";
import { INTEGER_BITS_MAX } from "./limits.ts";
import { List, PyObject, Undefined, type Value } from "./values.ts";

/** Deeper data is refused, so that printing it cannot exhaust the stack. */
const DEPTH_MAX = 1_000;

/**
 * Plain objects and Maps become dicts in their order (members that are `undefined` are left out), arrays lists,
 * whole JavaScript numbers ints, others floats. Throws `TemplateError` for functions, symbols and the like.
 */
export function toValue(value: unknown, depth = 0): Value {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "bigint":
      return value;
    case "number":
      return Number.isInteger(value) && !Object.is(value, -0) ? BigInt(value) : value;
    case "undefined":
      return new Undefined("the value is undefined");
    case "object":
      return value === null ? null : objectValue(value, depth);
    default:
      throw new TemplateError(`a template cannot use a JavaScript ${typeof value}`);
  }
}

function objectValue(value: object, depth: number): Value {
  if (depth > DEPTH_MAX) throw new TemplateError(`the data is nested deeper than ${DEPTH_MAX} levels`);
  if (value instanceof PyObject) return value;
  if (value instanceof JsonNumber) return numberValue(value);
  if (Array.isArray(value)) return new List(value.map((item) => toValue(item, depth + 1)));
  const entries: Iterable<readonly [unknown, unknown]> = value instanceof Map ? value : Object.entries(value);
  const members: [Value, Value][] = [];
  for (const [key, member] of entries) {
    if (member !== undefined) members.push([toValue(key, depth + 1), toValue(member, depth + 1)]);
  }
  return new Dict(members);
}

function numberValue(number: JsonNumber): Value {
  if (!number.isInteger) return Number(number.source);
  // Four bits a digit is more than decimal digits need.
  if (number.source.length * 4 > INTEGER_BITS_MAX) throw new TemplateError("an integer of the data is too large");
  return BigInt(number.source);
}
