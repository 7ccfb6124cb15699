/** Filters that make or change numbers. */
import { Bound } from "./bind.ts";
import { TemplateError } from "./errors.ts";
import type { Filter } from "./filters.ts";
import { divideToEven, fixedDigits, roundFloat } from "./floats.ts";
import { numberOf } from "./operators.ts";
import { checkLength, type Run } from "./run.ts";
import { strip } from "./string-layout.ts";
import { type Arguments, type Keywords, textOf, typeName, Undefined, type Value } from "./values.ts";

/** Python's `int(text, base)`: undefined where it raises. */
export function parseInteger(text: string, base: number): bigint | undefined {
  const match = /^([+-]?)(0[xX]_?|0[oO]_?|0[bB]_?)?([\da-zA-Z]+(?:_[\da-zA-Z]+)*)$/.exec(strip(text, null, "both"));
  if (match === null) return undefined;
  const [, sign, prefix = "", digits = ""] = match;
  const prefixBase = { x: 16, o: 8, b: 2 }[prefix[1]?.toLowerCase() ?? ""] ?? base;
  // Without a matching base, `0b1` in base 16 is the digits 0, b, 1.
  const isPrefix = prefix !== "" && (base === 0 || base === prefixBase);
  const radix = base === 0 ? prefixBase || 10 : base;
  const plain = (isPrefix ? digits : prefix + digits).replaceAll("_", "").toLowerCase();
  if (plain.length > 4_300 || (base === 0 && !isPrefix && /^0+[1-9]/.test(plain))) return undefined;
  let value = 0n;
  for (const digit of plain) {
    const number = Number.parseInt(digit, 36);
    if (number >= radix) return undefined;
    value = value * BigInt(radix) + BigInt(number);
  }
  return sign === "-" ? -value : value;
}

const FLOAT = /^[+-]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+(?:_\d+)*)?$/;

/** Python's `float(text)`: undefined where it raises. */
export function parseFloatText(text: string): number | undefined {
  const trimmed = strip(text, null, "both");
  if (FLOAT.test(trimmed)) return Number(trimmed.replaceAll("_", ""));
  const special = /^([+-]?)(inf(?:inity)?|nan)$/i.exec(trimmed);
  if (special === null) return undefined;
  if (special[2]?.toLowerCase() === "nan") return Number.NaN;
  return special[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
}

function toInt(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("int", ["default?", "base?"], args, keywords);
  const fallback = bound.value("default", 0n);
  if (input instanceof Undefined) input.fail();
  const text = textOf(input);
  const integer = text === undefined ? undefined : parseInteger(text, bound.integer("base", 10));
  if (integer !== undefined) return integer;
  const number = text === undefined ? numberOf(input) : parseFloatText(text);
  if (typeof number === "bigint") return number;
  return number !== undefined && Number.isFinite(number) ? BigInt(Math.trunc(number)) : fallback;
}

function toFloat(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const fallback = new Bound("float", ["default?"], args, keywords).value("default", 0);
  if (input instanceof Undefined) input.fail();
  const text = textOf(input);
  const number = text === undefined ? numberOf(input) : parseFloatText(text);
  return number === undefined ? fallback : Number(number);
}

function absolute(_run: Run, input: Value): Value {
  const number = requireNumber(input);
  return number < 0 ? -number : typeof number === "number" ? Math.abs(number) : number;
}

function requireNumber(input: Value): bigint | number {
  if (input instanceof Undefined) input.fail();
  const number = numberOf(input);
  if (number === undefined) throw new TemplateError(`a number is needed, not ${typeName(input)}`);
  return number;
}

function round(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const bound = new Bound("round", ["precision?", "method?"], args, keywords);
  const precision = bound.integer("precision", 0);
  const method = bound.text("method", "common");
  if (method !== "common" && method !== "ceil" && method !== "floor") {
    throw new TemplateError("round: method must be common, ceil or floor");
  }
  const number = requireNumber(input);
  if (method !== "common") return roundDirected(Number(number), precision, method);
  if (typeof number === "number") return roundFloat(number, precision);
  if (precision >= 0) return number;
  if (precision < -5_000) return 0n;
  const unit = 10n ** BigInt(-precision);
  return divideToEven(number, unit) * unit;
}

function roundDirected(x: number, precision: number, method: "ceil" | "floor"): number {
  const scale = 10 ** precision;
  const result = (method === "ceil" ? Math.ceil(x * scale) : Math.floor(x * scale)) / scale;
  if (!Number.isFinite(result)) throw new TemplateError("round: the number is too large");
  // Python's ceil and floor give ints, which have no negative zero.
  return result === 0 ? 0 : result;
}

const DECIMAL_UNITS = ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];
const BINARY_UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];

function fileSize(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const binary = new Bound("filesizeformat", ["binary?"], args, keywords).flag("binary", false);
  const text = textOf(input);
  const bytes = Number(text === undefined ? requireNumber(input) : (parseFloatText(text) ?? Number.NaN));
  if (Number.isNaN(bytes)) throw new TemplateError("filesizeformat needs a number");
  const base = binary ? 1024 : 1000;
  if (bytes === 1) return "1 Byte";
  if (bytes < base) return `${Math.trunc(bytes)} Bytes`;
  const units = binary ? BINARY_UNITS : DECIMAL_UNITS;
  const step = units.findIndex((_unit, index) => bytes < base ** (index + 2));
  const index = step < 0 ? units.length - 1 : step;
  const shown = fixedDigits((base * bytes) / base ** (index + 2), 1);
  checkLength(shown.length);
  return `${shown} ${units[index]}`;
}

export const numberFilters: readonly (readonly [string, Filter])[] = [
  ["int", toInt],
  ["float", toFloat],
  ["abs", absolute],
  ["round", round],
  ["filesizeformat", fileSize],
];
