/** Automata of bounded numbers against comparison of the numbers themselves. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { numbersWithin } from "../../../src/text/grammar/numbers.ts";
import type { Bound } from "../../../src/text/grammar/shapes.ts";
import { conformsTo } from "./accepting.ts";

const value = fc.oneof(
  fc.integer({ min: -2000, max: 2000 }),
  fc.integer({ min: -99_999, max: 99_999 }).map((n) => n / 1000),
  fc.constantFrom(0, -0, 0.1, 1e-7, 1e21, -1e21, 9007199254740991, 0.5, -0.5, 10, 99, 100, 1000),
);
const bound: fc.Arbitrary<Bound | null> = fc.option(fc.record({ value, exclusive: fc.boolean() }));

function within(number: number, min: Bound | null, max: Bound | null): boolean {
  const above = min === null || number > min.value || (number === min.value && !min.exclusive);
  return above && (max === null || number < max.value || (number === max.value && !max.exclusive));
}

/** Texts near the bounds, and some far away. */
function near(bounds: readonly (Bound | null)[]): fc.Arbitrary<number> {
  const around = bounds.flatMap((one) => (one === null ? [] : [one.value]));
  return fc.oneof(
    value,
    ...around.flatMap((center) => [
      fc.constant(center),
      fc.constantFrom(-1, 1, -0.1, 0.1, -0.001, 0.001, 10, -10).map((step) => Number((center + step).toFixed(6))),
    ]),
  );
}

const bounds = fc.tuple(bound, bound).filter(([min, max]) => min !== null || max !== null);

test("integers between bounds", () => {
  fc.assert(
    fc.property(
      bounds.chain(([min, max]) => fc.tuple(fc.constant(min), fc.constant(max), near([min, max]))),
      ([min, max, number]) => {
        const automaton = numbersWithin({ kind: "number", integer: true, min, max });
        const whole = Math.round(number);
        if (Math.abs(whole) > 1e18) return;
        const text = BigInt(whole).toString();
        expect([text, conformsTo(automaton, text)]).toEqual([text, within(whole, min, max)]);
        expect(conformsTo(automaton, `0${text}`)).toBe(false);
        expect(conformsTo(automaton, `${text}.0`)).toBe(false);
      },
    ),
    { numRuns: 3000 },
  );
});

test("numbers between bounds", () => {
  fc.assert(
    fc.property(
      bounds.chain(([min, max]) => fc.tuple(fc.constant(min), fc.constant(max), near([min, max]))),
      ([min, max, number]) => {
        const automaton = numbersWithin({ kind: "number", integer: false, min, max });
        // Decimal notation with as many digits as the automaton has room for.
        const text = Math.abs(number) < 1e15 ? number.toFixed(7).replace(/\.?0+$/, "") : "";
        if (text === "" || Number(text) !== number) return;
        expect([text, conformsTo(automaton, text)]).toEqual([text, within(number, min, max)]);
        const padded = text.includes(".") ? `${text}0` : `${text}.0`;
        expect([padded, conformsTo(automaton, padded)]).toEqual([padded, within(number, min, max)]);
        expect(conformsTo(automaton, text.includes(".") ? "." : `${text}.`)).toBe(false);
      },
    ),
    { numRuns: 3000 },
  );
});

test("bounds without a number between them leave none", () => {
  const exclusive = (number: number) => ({ value: number, exclusive: true });
  expect(numbersWithin({ kind: "number", integer: true, min: exclusive(3), max: exclusive(4) })).toEqual([]);
  expect(numbersWithin({ kind: "number", integer: false, min: exclusive(3), max: exclusive(3) })).toEqual([]);
});
