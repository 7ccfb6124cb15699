/**
 * Decimal texts of doubles as Python writes them. Rounding to given digits is exact (the double's true value,
 * halves to even), as C's printf and Python's `round` do; JavaScript's `toFixed` rounds halves up.
 */
import { TemplateError } from "./errors.ts";

/** More digits than any double has; beyond it only zeros would follow. */
const DIGITS_MAX = 1_100;

/** `repr(x)`: the shortest digits that read back as `x`; exponents below -4 and from 16 on. */
export function floatRepr(x: number): string {
  if (!Number.isFinite(x)) return nonFinite(x);
  const [mantissa = "0", exponentText = "0"] = x.toExponential().split("e");
  const exponent = Number(exponentText);
  if (x !== 0 && (exponent < -4 || exponent >= 16)) return `${mantissa}e${signedExponent(exponent)}`;
  const negative = mantissa.startsWith("-") || Object.is(x, -0);
  const digits = mantissa.replace(/[-.]/g, "");
  return (negative ? "-" : "") + placePoint(digits, exponent);
}

function placePoint(digits: string, exponent: number): string {
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${whole}.${digits.slice(exponent + 1) || "0"}`;
}

export function nonFinite(x: number): string {
  return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

function signedExponent(exponent: number): string {
  return `${exponent < 0 ? "-" : "+"}${Math.abs(exponent).toString().padStart(2, "0")}`;
}

/** The integer nearest to x·10^digits, halves to even. `x` must be finite. */
export function roundScaled(x: number, digits: number): bigint {
  const [mantissa, exponent] = decompose(x);
  let numerator = mantissa * 10n ** BigInt(Math.max(digits, 0));
  let denominator = 10n ** BigInt(Math.max(-digits, 0));
  if (exponent >= 0) numerator <<= BigInt(exponent);
  else denominator <<= BigInt(-exponent);
  return divideToEven(numerator, denominator);
}

/** Nearest integer to numerator/denominator (denominator > 0), halves to even. */
export function divideToEven(numerator: bigint, denominator: bigint): bigint {
  const negative = numerator < 0n;
  const magnitude = negative ? -numerator : numerator;
  let quotient = magnitude / denominator;
  const twice = (magnitude % denominator) * 2n;
  if (twice > denominator || (twice === denominator && quotient % 2n === 1n)) quotient += 1n;
  return negative ? -quotient : quotient;
}

/** x = mantissa · 2^exponent, exactly. */
function decompose(x: number): [bigint, number] {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const biased = Number((bits >> 52n) & 0x7ffn);
  const fraction = bits & 0xf_ffff_ffff_ffffn;
  const mantissa = biased === 0 ? fraction : fraction | (1n << 52n);
  return [x < 0 ? -mantissa : mantissa, (biased === 0 ? 1 : biased) - 1075];
}

/** `round(x, digits)` for floats. */
export function roundFloat(x: number, digits: number): number {
  if (!Number.isFinite(x) || digits > 330) return x;
  if (digits < -310) return x < 0 ? -0 : 0;
  const scaled = roundScaled(x, digits);
  const rounded = Number(`${scaled}e${-digits}`);
  return rounded === 0 && (x < 0 || Object.is(x, -0)) ? -0 : rounded;
}

/** `%.{digits}f`, without sign; `x` finite. */
export function fixedDigits(x: number, digits: number): string {
  checkDigits(digits);
  const scaled = roundScaled(Math.abs(x), digits)
    .toString()
    .padStart(digits + 1, "0");
  return digits === 0 ? scaled : `${scaled.slice(0, -digits)}.${scaled.slice(-digits)}`;
}

/** `%.{digits}e`, without sign; `x` finite. */
export function exponentDigits(x: number, digits: number): string {
  const [text, exponent] = significant(x, digits + 1);
  const fraction = text.slice(1);
  return `${text[0]}${fraction === "" ? "" : `.${fraction}`}e${signedExponent(exponent)}`;
}

/** `%.{digits}g`, without sign; `x` finite. `keepZeros` is the `#` flag. */
export function generalDigits(x: number, digits: number, keepZeros: boolean): string {
  const precision = Math.max(digits, 1);
  const [, exponent] = significant(x, precision);
  const isFixed = exponent >= -4 && exponent < precision;
  const text = isFixed ? fixedDigits(x, precision - 1 - exponent) : exponentDigits(x, precision - 1);
  if (keepZeros) return text;
  const [mantissa = "", tail] = text.split("e");
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
  return tail === undefined ? short : `${short}e${tail}`;
}

/** `count` significant digits of |x| and the decimal exponent of the first. */
function significant(x: number, count: number): [string, number] {
  checkDigits(count);
  if (x === 0) return ["0".repeat(count), 0];
  const magnitude = Math.abs(x);
  let exponent = Number(magnitude.toExponential().split("e")[1]);
  let digits = roundScaled(magnitude, count - 1 - exponent).toString();
  if (digits.length > count) {
    exponent += 1;
    digits = roundScaled(magnitude, count - 1 - exponent).toString();
  }
  return [digits, exponent];
}

function checkDigits(digits: number): void {
  if (digits > DIGITS_MAX) throw new TemplateError(`a number format asks for more than ${DIGITS_MAX} digits`);
}
