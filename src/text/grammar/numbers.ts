/**
 * Numbers within bounds as rules. Integers have no fraction (`3.0` is none), bounded numbers no exponent. Numbers without
 * bounds have at most 19 digits in front of the point and 20 behind it, so that a model cannot write digits for ever.
 */
import { type Automaton, explore } from "./automaton.ts";
import { charSet } from "./charset.ts";
import { bareText } from "./dialect.ts";
import { literal, type Rules } from "./rules.ts";
import type { Bound, NumberShape } from "./shapes.ts";
import { writeText } from "./text-form.ts";

const INTEGER_DIGITS = 19;
const FRACTION_DIGITS = 20;
/** Digits behind the point of a bounded number, at least; each is a rule. */
const BOUNDED_DIGITS = 8;

/** The rule of a number; null: there is none within the bounds. */
export function numberRule(rules: Rules, shape: NumberShape): string | null {
  const { integer, min, max } = shape;
  if (min === null && max === null) {
    return rules.once(integer ? "integer" : "number", (name) => {
      const whole = rules.once("whole", (own) => rules.define(own, [`"0"`, `[1-9] [0-9]{0,${INTEGER_DIGITS - 1}}`]));
      if (integer) rules.define(name, [whole, `"-" ${whole}`]);
      else {
        const rest = rules.once("fraction", (own) => {
          const exponent = `[eE] [+\\-]? [0-9]{1,2}`;
          rules.define(own, [anyFraction(rules), `${anyFraction(rules)} ${exponent}`]);
        });
        rules.define(name, [`${whole} ${rest}`, `"-" ${whole} ${rest}`]);
      }
    });
  }
  const alternatives = [
    ...side(rules, integer, atLeastZero(min), max),
    ...side(rules, integer, atLeastZero(negated(max)), negated(min)).map((digits) => `"-" ${digits}`),
  ];
  return alternatives.length === 0 ? null : rules.define(rules.name("bounded"), alternatives);
}

function negated(bound: Bound | null): Bound | null {
  return bound === null ? null : { value: -bound.value, exclusive: bound.exclusive };
}

function atLeastZero(bound: Bound | null): Bound {
  return bound === null || bound.value < 0 ? { value: 0, exclusive: false } : bound;
}

/** Unsigned numbers from `low`, which is not negative. */
function side(rules: Rules, integer: boolean, low: Bound, high: Bound | null): string[] {
  if (high !== null && (high.value < low.value || (high.value === low.value && (high.exclusive || low.exclusive))))
    return [];
  const [from, to] = [decimal(low.value), high === null ? null : decimal(high.value)];
  if (integer) {
    const first = from.whole + (from.fraction !== "" || low.exclusive ? 1n : 0n);
    const last = to === null ? null : to.whole - (to.fraction === "" && high?.exclusive === true ? 1n : 0n);
    return wholeNumbers(first, last);
  }
  const lowEnd: Edge = { digits: from.fraction, exclusive: low.exclusive };
  const highEnd: Edge | null = to === null || high === null ? null : { digits: to.fraction, exclusive: high.exclusive };
  const fraction = (low: Edge | null, high: Edge | null) =>
    writeText(rules, "fraction_of", fractions(low, high), DIGITS_FORM);
  const joined = (numbers: readonly string[], rule: string | null) =>
    rule === null ? [] : numbers.map((n) => `${n} ${rule}`);
  const single = (whole: bigint) => [literal(whole.toString())];
  if (to !== null && to.whole === from.whole) return joined(single(from.whole), fraction(lowEnd, highEnd));
  return [
    ...joined(single(from.whole), fraction(lowEnd, null)),
    ...joined(wholeNumbers(from.whole + 1n, to === null ? null : to.whole - 1n), anyFraction(rules)),
    ...(to === null ? [] : joined(single(to.whole), fraction(null, highEnd))),
  ];
}

function anyFraction(rules: Rules): string {
  return rules.once("point", (name) => rules.define(name, ['""', `"." [0-9]{1,${FRACTION_DIGITS}}`]));
}

/** The digits behind the point of a bound. */
interface Edge {
  readonly digits: string;
  readonly exclusive: boolean;
}

interface FractionState {
  /** Digits read; −1: not even the point. */
  readonly read: number;
  /** All digits so far are those of the lower (upper) bound. */
  readonly onLow: boolean;
  readonly onHigh: boolean;
}

/** What may stand behind a whole number: nothing, or a point and digits. */
function fractions(low: Edge | null, high: Edge | null): Automaton {
  const digits = Math.max(BOUNDED_DIGITS, (low?.digits.length ?? 0) + 2, (high?.digits.length ?? 0) + 2);
  const isZero = (edge: Edge, read: number) => /^0*$/.test(edge.digits.slice(Math.max(read, 0)));
  const start: FractionState = { read: -1, onLow: low !== null, onHigh: high !== null };
  return explore(
    start,
    ({ read, onLow, onHigh }) => `${read} ${onLow} ${onHigh}`,
    ({ read, onLow, onHigh }) => {
      if (read === 0) return false;
      const aboveLow = !onLow || low === null || (isZero(low, read) && !low.exclusive);
      // With zeros behind it, what was read is at most the bound.
      const belowHigh = !onHigh || high === null || !high.exclusive || !isZero(high, read);
      return aboveLow && belowHigh;
    },
    ({ read, onLow, onHigh }) => {
      if (read < 0) return [{ on: POINT, to: { read: 0, onLow, onHigh } }];
      if (read >= digits) return [];
      const lowDigit = onLow ? Number(low?.digits[read] ?? "0") : 0;
      const highDigit = onHigh ? Number(high?.digits[read] ?? "0") : 9;
      return Array.from({ length: Math.max(0, highDigit - lowDigit + 1) }, (_, i) => {
        const digit = lowDigit + i;
        const to = { read: read + 1, onLow: onLow && digit === lowDigit, onHigh: onHigh && digit === highDigit };
        return { on: charSet([[0x30 + digit, 0x30 + digit]]), to };
      });
    },
  );
}

const POINT = charSet([[0x2e, 0x2e]]);
const NUMERALS = charSet([
  [0x2e, 0x2e],
  [0x30, 0x39],
]);
const DIGITS_FORM = bareText("", NUMERALS);

/** Whole numbers from `from` to `to` (null: no end), without leading zeros, as alternatives. */
export function wholeNumbers(from: bigint, to: bigint | null): string[] {
  if (to !== null && from > to) return [];
  const digits = from.toString().length;
  if (to === null) {
    const most = Math.max(INTEGER_DIGITS, digits);
    const longer = digits < most ? [`[1-9] [0-9]{${digits},${most - 1}}`] : [];
    return [...wholeNumbers(from, 10n ** BigInt(digits) - 1n), ...longer];
  }
  const out: string[] = [];
  for (let low = from; low <= to; ) {
    const end = 10n ** BigInt(low.toString().length) - 1n;
    const high = end < to ? end : to;
    out.push(...sameLength(low.toString(), high.toString()));
    low = high + 1n;
  }
  return out;
}

/** Numbers of one length between two. */
function sameLength(low: string, high: string): string[] {
  const length = low.length;
  if (low === high) return [literal(low)];
  const [a, b] = [Number(low[0]), Number(high[0])];
  const rest = length - 1;
  const any = (count: number) => (count === 0 ? "" : count === 1 ? " [0-9]" : ` [0-9]{${count}}`);
  if (a === b) return sameLength(low.slice(1), high.slice(1)).map((tail) => `${literal(String(a))} ${tail}`);
  const zeros = "0".repeat(rest);
  const nines = "9".repeat(rest);
  const out: string[] = [];
  const fullLow = low.slice(1) === zeros;
  const fullHigh = high.slice(1) === nines;
  const first = fullLow ? a : a + 1;
  const last = fullHigh ? b : b - 1;
  if (!fullLow) out.push(...sameLength(low.slice(1), nines).map((tail) => `${literal(String(a))} ${tail}`));
  if (first <= last) out.push(`[${first}-${last}]${any(rest)}`);
  if (!fullHigh) out.push(...sameLength(zeros, high.slice(1)).map((tail) => `${literal(String(b))} ${tail}`));
  return out;
}

/** A number that is not negative, as digits. */
function decimal(value: number): { readonly whole: bigint; readonly fraction: string } {
  const [mantissa = "0", exponent = "0"] = String(value).split("e");
  const [whole = "0", fraction = ""] = mantissa.split(".");
  const shift = Number(exponent);
  const digits = whole + fraction;
  const point = whole.length + shift;
  const padded = point < 0 ? "0".repeat(-point) + digits : digits.padEnd(point, "0");
  const at = Math.max(point, 0);
  return { whole: BigInt(padded.slice(0, at) || "0"), fraction: padded.slice(at).replace(/0+$/, "") };
}
