/** The tests behind `is`. */
import { Bound } from "./bind.ts";
import { contains, equals, identical, isIterable, type OrderOperator, ordered } from "./compare.ts";
import { Dict } from "./dict.ts";
import { toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { isFilter } from "./filters.ts";
import { modulo } from "./operators.ts";
import type { Run } from "./run.ts";
import { isLower, isUpper } from "./string-case.ts";
import {
  type Arguments,
  Callable,
  isText,
  type Keywords,
  List,
  Markup,
  Range,
  Tuple,
  textOf,
  Undefined,
  type Value,
} from "./values.ts";

export type Test = (run: Run, input: Value, args: Arguments, keywords: Keywords) => boolean;

const question =
  (name: string, holds: (input: Value, run: Run) => boolean): Test =>
  (run, input, args, keywords) => {
    new Bound(name, [], args, keywords);
    return holds(input, run);
  };

const relation =
  (name: string, holds: (run: Run, input: Value, other: Value) => boolean): Test =>
  (run, input, args, keywords) =>
    holds(run, input, new Bound(name, ["other"], args, keywords).value("other"));

const order =
  (operator: OrderOperator): Test =>
  (run, input, args, keywords) =>
    relation(operator, (_run, left, right) => ordered(operator, left, right))(run, input, args, keywords);

function isSequence(input: Value): boolean {
  return isText(input) || [List, Tuple, Dict, Range, Undefined].some((Sequence) => input instanceof Sequence);
}

function isRemainder(run: Run, input: Value, divisor: Value, remainder: bigint): boolean {
  return equals(modulo(run, input, divisor), remainder);
}

const equal = relation("eq", (_run, left, right) => equals(left, right));
const unequal = relation("ne", (_run, left, right) => !equals(left, right));

const QUESTIONS: Readonly<Record<string, (input: Value, run: Run) => boolean>> = {
  boolean: (input) => typeof input === "boolean",
  callable: (input) => input instanceof Callable || input instanceof Undefined,
  defined: (input) => !(input instanceof Undefined),
  escaped: (input) => input instanceof Markup,
  even: (input, run) => isRemainder(run, input, 2n, 0n),
  false: (input) => input === false,
  filter: (input) => isFilter(textOf(input) ?? ""),
  float: (input) => typeof input === "number",
  integer: (input) => typeof input === "bigint",
  iterable: isIterable,
  lower: (input) => isLower(toText(input)),
  mapping: (input) => input instanceof Dict,
  none: (input) => input === null,
  number: (input) => typeof input === "bigint" || typeof input === "number" || typeof input === "boolean",
  odd: (input, run) => isRemainder(run, input, 2n, 1n),
  sequence: isSequence,
  string: isText,
  test: (input) => TESTS.has(textOf(input) ?? ""),
  true: (input) => input === true,
  undefined: (input) => input instanceof Undefined,
  upper: (input) => isUpper(toText(input)),
};

const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  ...Object.entries(QUESTIONS).map(([name, holds]) => [name, question(name, holds)] as const),
  ...["eq", "==", "equalto"].map((name) => [name, equal] as const),
  ...["ne", "!="].map((name) => [name, unequal] as const),
  ...["lt", "<", "lessthan"].map((name) => [name, order("<")] as const),
  ...["le", "<="].map((name) => [name, order("<=")] as const),
  ...["gt", ">", "greaterthan"].map((name) => [name, order(">")] as const),
  ...["ge", ">="].map((name) => [name, order(">=")] as const),
  ["in", relation("in", (run, item, container) => contains(run, container, item))],
  ["sameas", relation("sameas", (_run, left, right) => identical(left, right))],
  ["divisibleby", relation("divisibleby", (run, input, divisor) => isRemainder(run, input, divisor, 0n))],
]);

export function findTest(name: string): Test {
  const test = TESTS.get(name);
  if (test === undefined) throw new TemplateError(`there is no test named '${name}'`);
  return test;
}
