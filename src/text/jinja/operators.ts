/** Arithmetic of Python: int, float and bool mix, `//` and `%` round down, + and * join and repeat sequences. */
import { escapeHtml, toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { INTEGER_BITS_MAX, ITEMS_MAX } from "./limits.ts";
import { percentFormat } from "./percent-format.ts";
import { checkLength, type Run } from "./run.ts";
import { isText, List, Markup, Tuple, textOf, typeName, Undefined, type Value } from "./values.ts";

/** A number's value, with bool as int; undefined for anything else. */
export function numberOf(value: Value): bigint | number | undefined {
  if (typeof value === "bigint" || typeof value === "number") return value;
  return typeof value === "boolean" ? BigInt(value) : undefined;
}

export function add(run: Run, left: Value, right: Value): Value {
  if (typeof left === "string" && typeof right === "string") {
    checkLength(left.length + right.length);
    return left + right;
  }
  return arithmetic(left, right, integerSum, (a, b) => a + b) ?? join(run, left, right);
}

function integerSum(a: bigint, b: bigint): bigint {
  return checkInteger(a + b);
}

function join(run: Run, left: Value, right: Value): Value {
  if (isText(left) && isText(right)) {
    const joined = [left, right]
      .map((side) => (side instanceof Markup ? side.text : escapeHtml(toText(side))))
      .join("");
    checkLength(joined.length);
    return new Markup(joined);
  }
  for (const Sequence of [List, Tuple]) {
    if (left instanceof Sequence && right instanceof Sequence) {
      run.charge(left.items.length + right.items.length);
      return new Sequence([...left.items, ...right.items]);
    }
  }
  if (isText(left)) throw new TemplateError(`can only concatenate str (not "${typeName(right)}") to str`);
  throw unsupported("+", left, right);
}

export function subtract(left: Value, right: Value): Value {
  const result = arithmetic(
    left,
    right,
    (a, b) => checkInteger(a - b),
    (a, b) => a - b,
  );
  if (result === undefined) throw unsupported("-", left, right);
  return result;
}

export function multiply(run: Run, left: Value, right: Value): Value {
  const product = arithmetic(
    left,
    right,
    (a, b) => checkInteger(a * b),
    (a, b) => a * b,
  );
  if (product !== undefined) return product;
  return repeat(run, left, right) ?? repeat(run, right, left) ?? fail("*", left, right);
}

function repeat(run: Run, sequence: Value, count: Value): Value | undefined {
  const times = typeof count === "boolean" ? BigInt(count) : count;
  if (typeof times !== "bigint") return undefined;
  const rounds = times > 0n ? Number(times) : 0;
  const text = textOf(sequence);
  if (text !== undefined) {
    checkLength(text.length * rounds);
    run.charge(text.length * rounds);
    const repeated = text === "" ? "" : text.repeat(rounds);
    return sequence instanceof Markup ? new Markup(repeated) : repeated;
  }
  if (!(sequence instanceof List || sequence instanceof Tuple)) return undefined;
  const size = sequence.items.length * rounds;
  if (size > ITEMS_MAX) throw new TemplateError(`a repeated list would have more than ${ITEMS_MAX} items`);
  run.charge(size);
  const items = Array.from({ length: size === 0 ? 0 : rounds }, () => sequence.items).flat();
  return sequence instanceof List ? new List(items) : new Tuple(items);
}

export function divide(left: Value, right: Value): Value {
  const quotient = arithmetic(
    left,
    right,
    (a, b) => Number(a) / Number(nonZero(b)),
    (a, b) => a / nonZero(b),
  );
  return quotient ?? fail("/", left, right);
}

export function floorDivide(left: Value, right: Value): Value {
  return arithmetic(left, right, floorQuotient, floorQuotientFloat) ?? fail("//", left, right);
}

function floorQuotient(a: bigint, b: bigint): bigint {
  const quotient = a / nonZero(b);
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
}

function floorQuotientFloat(a: number, b: number): number {
  const quotient = (a - floatRemainder(a, b)) / b;
  if (quotient === 0) return a / b < 0 || Object.is(a / b, -0) ? -0 : 0;
  const floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

/** `%`: remainder of numbers, with the divisor's sign; formatting when the left side is text. */
export function modulo(run: Run, left: Value, right: Value): Value {
  if (isText(left)) return percentFormat(run, left, right);
  return arithmetic(left, right, integerRemainder, floatRemainder) ?? fail("%", left, right);
}

function integerRemainder(a: bigint, b: bigint): bigint {
  const remainder = a % nonZero(b);
  return remainder !== 0n && remainder < 0n !== b < 0n ? remainder + b : remainder;
}

function floatRemainder(a: number, b: number): number {
  const remainder = a % nonZero(b);
  if (remainder === 0) return b < 0 ? -0 : 0;
  return remainder < 0 !== b < 0 ? remainder + b : remainder;
}

export function power(left: Value, right: Value): Value {
  return arithmetic(left, right, integerPower, floatPower) ?? fail("**", left, right);
}

function integerPower(base: bigint, exponent: bigint): bigint | number {
  if (exponent < 0n) return floatPower(Number(base), Number(exponent));
  const isUnit = base === 0n || base === 1n || base === -1n;
  if (!isUnit && bitLength(base) * Number(exponent) > 2 * INTEGER_BITS_MAX) throw tooLarge();
  // The powers of 0, 1 and -1 repeat with period two, so any exponent can be cut down.
  return checkInteger(isUnit && exponent > 2n ? base ** (2n + (exponent % 2n)) : base ** exponent);
}

function floatPower(base: number, exponent: number): number {
  if (base === 0 && exponent < 0) throw new TemplateError("0.0 cannot be raised to a negative power");
  if (base < 0 && !Number.isInteger(exponent)) throw new TemplateError("complex numbers are not supported");
  // Python, unlike JavaScript, has 1 ** nan == 1 and (-1) ** inf == 1.
  if (base === 1 || (base === -1 && !Number.isFinite(exponent) && !Number.isNaN(exponent))) return 1;
  const result = base ** exponent;
  if (!Number.isFinite(result) && Number.isFinite(base) && Number.isFinite(exponent)) {
    throw new TemplateError("a float result is too large");
  }
  return result;
}

export function negate(value: Value): Value {
  const number = signed("-", value);
  return -number;
}

export function positive(value: Value): Value {
  return signed("+", value);
}

function signed(operator: string, value: Value): bigint | number {
  const number = numberOf(value);
  if (number !== undefined) return number;
  if (value instanceof Undefined) value.fail();
  throw new TemplateError(`bad operand type for unary ${operator}: '${typeName(value)}'`);
}

/** Applies the operator to two numbers; undefined when one operand is not a number. */
function arithmetic(
  left: Value,
  right: Value,
  ofIntegers: (a: bigint, b: bigint) => bigint | number,
  ofFloats: (a: number, b: number) => number,
): bigint | number | undefined {
  const a = numberOf(left);
  const b = numberOf(right);
  if (a === undefined || b === undefined) {
    if (left instanceof Undefined) left.fail();
    if (right instanceof Undefined) right.fail();
    return undefined;
  }
  if (typeof a === "bigint" && typeof b === "bigint") return ofIntegers(a, b);
  return ofFloats(Number(a), Number(b));
}

function nonZero<N extends bigint | number>(divisor: N): N {
  if (divisor === 0n || divisor === 0) throw new TemplateError("division by zero");
  return divisor;
}

function bitLength(value: bigint): number {
  return (value < 0n ? -value : value).toString(16).length * 4;
}

const INTEGER_BOUND = 1n << BigInt(INTEGER_BITS_MAX);

function checkInteger(value: bigint): bigint {
  if (value > INTEGER_BOUND || value < -INTEGER_BOUND) throw tooLarge();
  return value;
}

function tooLarge(): TemplateError {
  return new TemplateError(`an integer has more than ${INTEGER_BITS_MAX} bits`);
}

function fail(operator: string, left: Value, right: Value): never {
  throw unsupported(operator, left, right);
}

function unsupported(operator: string, left: Value, right: Value): TemplateError {
  return new TemplateError(`unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
}
