/**
 * Numbers within bounds as automata, digit by digit. Integers have no fraction (`3.0` is none), bounded numbers no exponent.
 * Numbers without bounds have at most 19 digits in front of the point and 20 behind it, so that a model cannot write digits
 * for ever.
 */
import { type Automaton, explore } from "./automaton.ts";
import { type CharSet, charSet } from "./charset.ts";
import { bareText } from "./dialect.ts";
import type { Rules } from "./rules.ts";
import type { Bound, NumberShape } from "./shapes.ts";
import { writeText } from "./text-form.ts";

const INTEGER_DIGITS = 19;
const FRACTION_DIGITS = 20;
/** Digits behind the point of a bounded number, at least; each is a rule. */
const BOUNDED_DIGITS = 8;

/** The rule of a number; null: there is none within the bounds. */
export function numberRule(rules: Rules, shape: NumberShape): string | null {
  const { integer, min, max } = shape;
  if (min !== null || max !== null) return writeText(rules, "bounded", numbersWithin(shape), NUMBER_FORM);
  const whole = rules.once("whole", (name) => rules.define(name, ['"0"', `[1-9] [0-9]{0,${INTEGER_DIGITS - 1}}`]));
  if (integer) return rules.once("integer", (name) => rules.define(name, [whole, `"-" ${whole}`]));
  return rules.once("number", (name) => {
    const point = rules.define(rules.name("point"), ['""', `"." [0-9]{1,${FRACTION_DIGITS}}`]);
    const exponent = rules.define(rules.name("exponent"), ['""', `[eE] [+\\-]? [0-9]{1,2}`]);
    rules.define(name, [`${whole} ${point} ${exponent}`, `"-" ${whole} ${point} ${exponent}`]);
  });
}

/** Unsigned decimal digits of a bound. */
interface Limit {
  readonly whole: string;
  readonly fraction: string;
  readonly exclusive: boolean;
}

/** Unsigned numbers between two limits. */
interface Side {
  readonly low: Limit;
  /** null: no end. */
  readonly high: Limit | null;
}

/** How the digits so far compare with as many of a limit's. */
type Order = -1 | 0 | 1;

type Place =
  | { readonly at: "start" }
  | { readonly at: "sign" }
  | { readonly at: "whole"; readonly side: 0 | 1; readonly digits: number; readonly low: Order; readonly high: Order }
  /** Behind the point; an order other than 0 is decided for good. `digits` 0: only the point is read. */
  | {
      readonly at: "fraction";
      readonly side: 0 | 1;
      readonly digits: number;
      readonly low: Order;
      readonly high: Order;
    };

const MINUS = charSet([[0x2d, 0x2d]]);
const POINT = charSet([[0x2e, 0x2e]]);
const NUMBER_FORM = bareText(
  "",
  charSet([
    [0x2d, 0x2e],
    [0x30, 0x39],
  ]),
);

/** The texts of numbers that have a bound. */
export function numbersWithin({ integer, min, max }: NumberShape): Automaton {
  const sides = [sideOf(min, max), sideOf(negated(max), negated(min))] as const;
  const fraction = (limit: Limit | null) => (limit === null ? 0 : limit.fraction.length + 2);
  const digitsMax = Math.max(
    BOUNDED_DIGITS,
    ...sides.flatMap((side) => [fraction(side?.low ?? null), fraction(side?.high ?? null)]),
  );
  return explore<Place>(
    { at: "start" },
    (place) => Object.values(place).join(),
    (place) => isWithin(place, sides),
    (place) => {
      switch (place.at) {
        case "start":
          return [
            ...firstDigits(0, sides[0]),
            ...(sides[1] === null ? [] : [{ on: MINUS, to: { at: "sign" } as const }]),
          ];
        case "sign":
          return firstDigits(1, sides[1]);
        case "whole":
          return [...nextWhole(place, sides[place.side]), ...(integer ? [] : pointBehind(place, sides[place.side]))];
        case "fraction":
          return nextFraction(place, sides[place.side], digitsMax);
      }
    },
  );
}

function negated(bound: Bound | null): Bound | null {
  return bound === null ? null : { value: -bound.value, exclusive: bound.exclusive };
}

/** The numbers of one sign; null: there are none. */
function sideOf(min: Bound | null, max: Bound | null): Side | null {
  const low = min === null || min.value < 0 ? { value: 0, exclusive: false } : min;
  if (max !== null && (max.value < low.value || (max.value === low.value && (max.exclusive || low.exclusive))))
    return null;
  return { low: limitOf(low), high: max === null ? null : limitOf(max) };
}

type Steps = { readonly on: CharSet; readonly to: Place }[];

function digitStep(digit: number, to: Place): Steps[number] {
  return { on: charSet([[0x30 + digit, 0x30 + digit]]), to };
}

function compare(before: Order, digit: number, limit: string | undefined): Order {
  if (before !== 0) return before;
  const other = Number(limit ?? "0");
  return digit < other ? -1 : digit > other ? 1 : 0;
}

function firstDigits(number: 0 | 1, side: Side | null): Steps {
  if (side === null) return [];
  return Array.from({ length: 10 }, (_, digit) =>
    digitStep(digit, {
      at: "whole",
      side: number,
      digits: digit === 0 ? 0 : 1,
      low: compare(0, digit, side.low.whole[0]),
      high: side.high === null ? -1 : compare(0, digit, side.high.whole[0]),
    }),
  );
}

/** More digits; none behind a leading zero (`digits` 0). */
function nextWhole(place: Extract<Place, { at: "whole" }>, side: Side | null): Steps {
  const longest = Math.max(side?.high?.whole.length ?? INTEGER_DIGITS, side?.low.whole.length ?? 0);
  if (side === null || place.digits === 0 || place.digits >= longest) return [];
  return Array.from({ length: 10 }, (_, digit) =>
    digitStep(digit, {
      ...place,
      digits: place.digits + 1,
      low: compare(place.low, digit, side.low.whole[place.digits]),
      high: side.high === null ? -1 : compare(place.high, digit, side.high.whole[place.digits]),
    }),
  );
}

/** The whole number that was read, compared with a limit's: the longer one is larger. */
function wholeOrder({ digits }: { readonly digits: number }, order: Order, limit: string): Order {
  const length = Math.max(digits, 1);
  if (length !== limit.length) return length < limit.length ? -1 : 1;
  return order;
}

function ordersOf(place: Extract<Place, { at: "whole" }>, side: Side): readonly [Order, Order] {
  const { low, high } = side;
  return [wholeOrder(place, place.low, low.whole), high === null ? -1 : wholeOrder(place, place.high, high.whole)];
}

function pointBehind(place: Extract<Place, { at: "whole" }>, side: Side | null): Steps {
  if (side === null) return [];
  const [low, high] = ordersOf(place, side);
  if (low < 0 || high > 0) return [];
  return [{ on: POINT, to: { at: "fraction", side: place.side, digits: 0, low, high } }];
}

function nextFraction(place: Extract<Place, { at: "fraction" }>, side: Side | null, digitsMax: number): Steps {
  if (side === null || place.digits >= digitsMax) return [];
  const steps = Array.from({ length: 10 }, (_, digit) => ({
    digit,
    low: compare(place.low, digit, side.low.fraction[place.digits]),
    high: side.high === null ? place.high : compare(place.high, digit, side.high.fraction[place.digits]),
  }));
  return steps
    .filter(({ low, high }) => low >= 0 && high <= 0)
    .map(({ digit, low, high }) => digitStep(digit, { ...place, digits: place.digits + 1, low, high }));
}

function isWithin(place: Place, sides: readonly [Side | null, Side | null]): boolean {
  if (place.at === "start" || place.at === "sign") return false;
  const side = sides[place.side];
  if (side === null || (place.at === "fraction" && place.digits === 0)) return false;
  const [low, high] = place.at === "whole" ? ordersOf(place, side) : [place.low, place.high];
  const read = place.at === "whole" ? 0 : place.digits;
  // Zeros follow in thought: where all digits were equal, what is left of the limit's fraction decides.
  const rest = (limit: Limit) => /[1-9]/.test(limit.fraction.slice(read));
  const above = low > 0 || (low === 0 && !rest(side.low) && !side.low.exclusive);
  const below = side.high === null || high < 0 || (high === 0 && (rest(side.high) || !side.high.exclusive));
  return above && below;
}

/** A number that is not negative, as digits. */
function limitOf({ value, exclusive }: Bound): Limit {
  const [mantissa = "0", exponent = "0"] = String(value).split("e");
  const [whole = "0", fraction = ""] = mantissa.split(".");
  const digits = whole + fraction;
  const point = whole.length + Number(exponent);
  const padded = point <= 0 ? "0".repeat(1 - point) + digits : digits.padEnd(point, "0");
  const at = Math.max(point, 1);
  return {
    whole: padded.slice(0, at).replace(/^0+(?=.)/, ""),
    fraction: padded.slice(at).replace(/0+$/, ""),
    exclusive,
  };
}
