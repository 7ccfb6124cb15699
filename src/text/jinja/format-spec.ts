/** `format(value, spec)`: Python's format specification mini-language for text, int and float. */
import { toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { exponentDigits, fixedDigits, floatRepr, generalDigits, nonFinite } from "./floats.ts";
import { numberOf } from "./operators.ts";
import { checkLength } from "./run.ts";
import { codePointLength, codePoints } from "./unicode.ts";
import { textOf, typeName, type Value } from "./values.ts";

const SPEC = /^(?:([\s\S])?([<>=^]))?([-+ ])?(z)?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([bcdeEfFgGnosxX%])?$/u;

interface Spec {
  readonly fill: string;
  readonly align: string | undefined;
  readonly sign: string;
  readonly alternate: boolean;
  readonly width: number;
  readonly grouping: string;
  readonly precision: number | null;
  readonly type: string;
}

export function formatValue(value: Value, source: string): string {
  if (source === "") return toText(value);
  const number = typeof value === "boolean" ? undefined : numberOf(value);
  const isText = textOf(value) !== undefined;
  if (!isText && number === undefined && typeof value !== "boolean") {
    throw new TemplateError(`unsupported format string passed to ${typeName(value)}.__format__`);
  }
  const spec = parse(source);
  checkLength(spec.width);
  if (isText) return formatText(spec, toText(value));
  // A bool is formatted as text only without a type, and as an int with one.
  const plain = number ?? (value === true ? 1n : 0n);
  if (typeof plain === "bigint" && !"eEfFgG%".includes(spec.type || "d")) return formatInteger(spec, plain);
  return formatFloat(spec, Number(plain));
}

function parse(source: string): Spec {
  const match = SPEC.exec(source);
  if (match === null) throw new TemplateError(`invalid format specifier '${source}'`);
  const [, fill, align, sign, , alternate, zero, width, grouping, precision, type] = match;
  return {
    fill: fill ?? (zero === undefined ? " " : "0"),
    align: align ?? (zero === undefined ? undefined : "="),
    sign: sign ?? "-",
    alternate: alternate !== undefined,
    width: Number(width ?? 0),
    grouping: grouping ?? "",
    precision: precision === undefined ? null : Number(precision),
    type: type ?? "",
  };
}

function formatText(spec: Spec, text: string): string {
  if (spec.type !== "" && spec.type !== "s") throw unknownType(spec, "str");
  if (spec.sign !== "-" || spec.grouping !== "") throw new TemplateError("sign and ',' not allowed in a string format");
  const shown = spec.precision === null ? text : codePoints(text).slice(0, spec.precision).join("");
  return pad(spec, "", shown, spec.align === "=" ? "<" : (spec.align ?? "<"));
}

const RADIX: Readonly<Record<string, number>> = { b: 2, o: 8, x: 16, X: 16 };

function formatInteger(spec: Spec, value: bigint): string {
  if (spec.precision !== null) throw new TemplateError("precision not allowed in integer format specifier");
  if (spec.type === "s") throw unknownType(spec, "int");
  if (spec.type === "c") return pad(spec, "", characterAt(value), spec.align ?? "<");
  const radix = RADIX[spec.type] ?? 10;
  const magnitude = (value < 0n ? -value : value).toString(radix);
  const digits = spec.type === "X" ? magnitude.toUpperCase() : magnitude;
  const prefix = spec.alternate && radix !== 10 ? `0${spec.type}` : "";
  return padNumber(spec, signOf(spec, value < 0n) + prefix, digits, radix === 10 ? 3 : 4);
}

function characterAt(code: bigint): string {
  if (code < 0n || code > 0x10ffffn) throw new TemplateError("%c arg not in range(0x110000)");
  return String.fromCodePoint(Number(code));
}

function formatFloat(spec: Spec, value: number): string {
  if ("bcdosxX".includes(spec.type || "g")) throw unknownType(spec, "float");
  const negative = value < 0 || Object.is(value, -0);
  const lower = Number.isFinite(value) ? finiteDigits(spec, Math.abs(value)) : nonFinite(Math.abs(value));
  const isUpper = spec.type === "E" || spec.type === "F" || spec.type === "G";
  const digits = (isUpper ? lower.toUpperCase() : lower) + (spec.type === "%" ? "%" : "");
  return padNumber(spec, signOf(spec, negative), digits, 3);
}

function finiteDigits(spec: Spec, value: number): string {
  const { precision } = spec;
  switch (spec.type.toLowerCase()) {
    case "f":
      return fixedDigits(value, precision ?? 6);
    case "e":
      return exponentDigits(value, precision ?? 6);
    case "%":
      return fixedDigits(value * 100, precision ?? 6);
    case "g":
    case "n":
      return generalDigits(value, precision ?? 6, spec.alternate);
    default:
      return precision === null ? floatRepr(value) : withPoint(value, precision);
  }
}

/** No type but a precision: as `g`, but never without a fraction or an exponent. */
function withPoint(value: number, precision: number): string {
  const general = generalDigits(value, precision, false);
  const exponent = value === 0 ? 0 : Math.floor(Math.log10(value));
  // One digit fewer before the exponent takes over, since the fraction needs one.
  if (!general.includes("e") && exponent >= Math.max(precision, 1) - 1 && value !== 0 && exponent > 0) {
    return exponentDigits(value, Math.max(precision, 1) - 1).replace(/\.?0*e/, "e");
  }
  return /[.e]/.test(general) ? general : `${general}.0`;
}

function signOf(spec: Spec, negative: boolean): string {
  return negative ? "-" : spec.sign === "-" ? "" : spec.sign;
}

function padNumber(spec: Spec, prefix: string, digits: string, groupSize: number): string {
  const grouped = spec.grouping === "" ? digits : group(spec, prefix, digits, groupSize);
  return pad(spec, prefix, grouped, spec.align ?? ">");
}

function group(spec: Spec, prefix: string, digits: string, size: number): string {
  const [whole = ""] = /^[\da-fA-F]+(?=\.|e|%|$)|^\d+/.exec(digits) ?? [];
  const tail = digits.slice(whole.length);
  let padded = whole;
  const separate = (text: string) => text.replace(new RegExp(`\\B(?=(?:[^]{${size}})+$)`, "g"), spec.grouping);
  // Zeros that fill the width are grouped too.
  if (spec.fill === "0" && spec.align === "=") {
    while (prefix.length + separate(padded).length + tail.length < spec.width) padded = `0${padded}`;
  }
  return separate(padded) + tail;
}

function pad(spec: Spec, prefix: string, body: string, align: string): string {
  const missing = Math.max(spec.width - codePointLength(prefix) - codePointLength(body), 0);
  const fill = (count: number) => spec.fill.repeat(count);
  if (align === "<") return prefix + body + fill(missing);
  if (align === "=") return prefix + fill(missing) + body;
  if (align === ">") return fill(missing) + prefix + body;
  const left = Math.floor(missing / 2);
  return fill(left) + prefix + body + fill(missing - left);
}

function unknownType(spec: Spec, type: string): TemplateError {
  return new TemplateError(`unknown format code '${spec.type}' for object of type '${type}'`);
}
