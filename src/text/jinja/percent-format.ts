/** `'%s: %05.1f' % (a, b)`: printf formatting of Python. */

import { Dict } from "./dict.ts";
import { escapeHtml, repr, toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { exponentDigits, fixedDigits, generalDigits, nonFinite } from "./floats.ts";
import { numberOf } from "./operators.ts";
import { checkLength, type Run } from "./run.ts";
import { codePointLength } from "./unicode.ts";
import { List, Markup, Range, Tuple, textOf, typeName, Undefined, type Value } from "./values.ts";

const DIRECTIVE = /%(?:\(([^()]*)\))?([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?[hlL]?([\s\S]|$)/g;

/** The left operand with its directives replaced. Throws where Python throws. */
export function percentFormat(run: Run, format: string | Markup, operand: Value): Value {
  const text = toText(format);
  const isMarkup = format instanceof Markup;
  const operands = new Operands(operand);
  const result = text.replace(DIRECTIVE, (_whole, key, flags, width, precision, conversion) => {
    run.step();
    if (conversion === "%") return "%";
    const directive = {
      flags: new Set<string>(flags),
      width: width === "*" ? operands.integer() : Number(width || 0),
      precision: precision === "*" ? operands.integer() : precision === undefined ? null : Number(precision || 0),
      conversion: String(conversion),
    };
    const value = typeof key === "string" ? operands.named(key) : operands.next();
    return formatOne(directive, isMarkup && typeof value === "string" ? new Markup(escapeHtml(value)) : value);
  });
  operands.finish();
  checkLength(result.length);
  return isMarkup ? new Markup(result) : result;
}

/** The right operand: a tuple is a list of values, a dict gives named ones, anything else is one value. */
class Operands {
  private used = 0;
  private readonly values: readonly Value[];
  private sawName = false;

  constructor(private readonly operand: Value) {
    this.values = operand instanceof Tuple ? operand.items : [operand];
  }

  next(): Value {
    const value = this.values[this.used];
    if (value === undefined) throw new TemplateError("not enough arguments for format string");
    this.used += 1;
    return value;
  }

  integer(): number {
    const value = this.next();
    if (typeof value !== "bigint") throw new TemplateError("* wants int");
    return Number(value);
  }

  named(key: string): Value {
    this.sawName = true;
    if (!(this.operand instanceof Dict)) throw new TemplateError("format requires a mapping");
    const value = this.operand.get(key);
    if (value === undefined) throw new TemplateError(`the format needs a key '${key}'`);
    return value;
  }

  finish(): void {
    // Whatever can be indexed by name or number may go unused, as in CPython.
    const mayBeUnused =
      this.sawName || [Dict, List, Range, Undefined].some((Indexable) => this.operand instanceof Indexable);
    if (this.used < this.values.length && !mayBeUnused) {
      throw new TemplateError("not all arguments converted during string formatting");
    }
  }
}

interface Directive {
  readonly flags: ReadonlySet<string>;
  readonly width: number;
  readonly precision: number | null;
  readonly conversion: string;
}

function formatOne(directive: Directive, value: Value): string {
  const { conversion, precision } = directive;
  switch (conversion) {
    case "s":
      return pad(directive, "", cut(toText(value), precision));
    case "r":
    case "a":
      return pad(directive, "", cut(repr(value), precision));
    case "c":
      return pad(directive, "", character(value));
    case "d":
    case "i":
    case "u":
    case "x":
    case "X":
    case "o":
      return formatInteger(directive, value);
    case "e":
    case "E":
    case "f":
    case "F":
    case "g":
    case "G":
      return formatFloat(directive, value);
    case "":
      throw new TemplateError("incomplete format");
    default:
      throw new TemplateError(`unsupported format character '${conversion}'`);
  }
}

function cut(text: string, precision: number | null): string {
  return precision === null ? text : Array.from(text).slice(0, precision).join("");
}

function character(value: Value): string {
  const text = textOf(value);
  if (text !== undefined && codePointLength(text) === 1) return text;
  const code = numberOf(value);
  if (typeof code === "bigint" && code >= 0n && code <= 0x10ffffn) return String.fromCodePoint(Number(code));
  throw new TemplateError("%c requires int or char");
}

function formatInteger(directive: Directive, value: Value): string {
  const { conversion, flags, precision } = directive;
  const integer = integerFor(conversion, value);
  const radix = conversion === "o" ? 8 : conversion.toLowerCase() === "x" ? 16 : 10;
  const lower = (integer < 0n ? -integer : integer).toString(radix).padStart(Math.min(precision ?? 0, 1_100), "0");
  const prefix = flags.has("#") && radix !== 10 ? (radix === 8 ? "0o" : `0${conversion}`) : "";
  return pad(directive, signFor(flags, integer < 0n) + prefix, conversion === "X" ? lower.toUpperCase() : lower);
}

function integerFor(conversion: string, value: Value): bigint {
  if (value instanceof Undefined) value.fail();
  const number = numberOf(value);
  if (typeof number === "bigint") return number;
  const isDecimal = conversion === "d" || conversion === "i" || conversion === "u";
  if (isDecimal && number !== undefined && Number.isFinite(number)) return BigInt(Math.trunc(number));
  const wanted = isDecimal ? "a real number" : "an integer";
  throw new TemplateError(`%${conversion} format: ${wanted} is required, not ${typeName(value)}`);
}

function formatFloat(directive: Directive, value: Value): string {
  const { conversion, flags } = directive;
  if (value instanceof Undefined) value.fail();
  const number = numberOf(value);
  if (number === undefined) throw new TemplateError(`must be real number, not ${typeName(value)}`);
  const x = Number(number);
  const negative = x < 0 || Object.is(x, -0);
  const digits = Number.isFinite(x)
    ? floatDigits(x, conversion.toLowerCase(), directive.precision ?? 6, flags.has("#"))
    : nonFinite(Math.abs(x));
  const body = conversion === conversion.toUpperCase() ? digits.toUpperCase() : digits;
  return pad(directive, signFor(flags, negative), body);
}

function floatDigits(x: number, conversion: string, precision: number, alternate: boolean): string {
  if (conversion === "f") return fixedDigits(x, precision);
  return conversion === "e" ? exponentDigits(x, precision) : generalDigits(x, precision, alternate);
}

function signFor(flags: ReadonlySet<string>, negative: boolean): string {
  return negative ? "-" : flags.has("+") ? "+" : flags.has(" ") ? " " : "";
}

function pad(directive: Directive, prefix: string, body: string): string {
  const { flags, width, conversion } = directive;
  const missing = Math.abs(width) - codePointLength(prefix) - codePointLength(body);
  if (missing <= 0) return prefix + body;
  checkLength(missing);
  if (flags.has("-") || width < 0) return prefix + body + " ".repeat(missing);
  const isText = conversion === "s" || conversion === "r" || conversion === "a" || conversion === "c";
  return flags.has("0") && !isText ? prefix + "0".repeat(missing) + body : " ".repeat(missing) + prefix + body;
}
