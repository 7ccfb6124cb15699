/** Expressions → closures `(scope) => value`, so that a template is analysed once and rendered often. */
import { getAttribute, getItem, getSlice } from "./access.ts";
import type { BinaryOperator, CallOperands, CompareOperator, Expression } from "./ast.ts";
import { contains, equals, iterate, ordered, truth } from "./compare.ts";
import { Dict } from "./dict.ts";
import { toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { findFilter } from "./filters.ts";
import { add, divide, floorDivide, modulo, multiply, negate, positive, power, subtract } from "./operators.ts";
import { checkLength, type Run } from "./run.ts";
import type { Scope } from "./scope.ts";
import { findTest } from "./tests.ts";
import {
  type Arguments,
  Callable,
  type Keywords,
  List,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

export type Evaluate = (scope: Scope) => Value;

export function compileExpression(expression: Expression): Evaluate {
  switch (expression.kind) {
    case "constant": {
      const { value } = expression;
      return () => value;
    }
    case "name": {
      const { name } = expression;
      return (scope) => scope.get(name);
    }
    case "list": {
      const items = expression.items.map(compileExpression);
      return (scope) => new List(items.map((item) => item(scope)));
    }
    case "tuple": {
      const items = expression.items.map(compileExpression);
      return (scope) => new Tuple(items.map((item) => item(scope)));
    }
    case "dict":
      return compileDict(expression.entries);
    case "attribute": {
      const object = compileExpression(expression.object);
      const { name } = expression;
      return (scope) => getAttribute(object(scope), name);
    }
    case "item": {
      const object = compileExpression(expression.object);
      const index = compileExpression(expression.index);
      return (scope) => getItem(object(scope), index(scope));
    }
    case "slice":
      return compileSlice(expression);
    case "call":
      return compileCall(expression.callee, expression.operands);
    case "filter":
      return compileFilter(expression);
    case "test":
      return compileTest(expression);
    case "unary":
      return compileUnary(expression.operator, compileExpression(expression.operand));
    case "binary":
      return compileBinary(
        expression.operator,
        compileExpression(expression.left),
        compileExpression(expression.right),
      );
    case "concat":
      return compileConcat(expression.parts.map(compileExpression));
    case "compare":
      return compileCompare(expression);
    case "logic":
      return compileLogic(expression);
    case "conditional":
      return compileConditional(expression);
  }
}

type Of<Kind extends Expression["kind"]> = Extract<Expression, { readonly kind: Kind }>;

function compileDict(source: readonly (readonly [Expression, Expression])[]): Evaluate {
  const entries = source.map(([key, value]) => [compileExpression(key), compileExpression(value)] as const);
  return (scope) => new Dict(entries.map(([key, value]) => [key(scope), value(scope)] as const));
}

function compileSlice(expression: Of<"slice">): Evaluate {
  const object = compileExpression(expression.object);
  const [start, stop, step] = [expression.start, expression.stop, expression.step].map((bound) =>
    bound === null ? () => null : compileExpression(bound),
  );
  return (scope) =>
    getSlice(scope.run, object(scope), start?.(scope) ?? null, stop?.(scope) ?? null, step?.(scope) ?? null);
}

const NO_ARGUMENTS: Arguments = [];
const NO_KEYWORDS: Keywords = new Map();

export type EvaluateOperands = (scope: Scope) => readonly [Arguments, Keywords];

export function compileOperands(operands: CallOperands): EvaluateOperands {
  const args = operands.args.map(compileExpression);
  const keywords = operands.keywords.map(([name, value]) => [name, compileExpression(value)] as const);
  const spreadArgs = operands.spreadArgs === null ? null : compileExpression(operands.spreadArgs);
  const spreadKeywords = operands.spreadKeywords === null ? null : compileExpression(operands.spreadKeywords);
  const noKeywords = keywords.length === 0 && spreadKeywords === null;
  if (args.length === 0 && noKeywords && spreadArgs === null) return () => [NO_ARGUMENTS, NO_KEYWORDS];
  return (scope) => {
    const values = args.map((arg) => arg(scope));
    if (spreadArgs !== null) for (const value of iterate(spreadArgs(scope))) values.push(value);
    if (noKeywords) return [values, NO_KEYWORDS];
    const named = new Map(keywords.map(([name, value]) => [name, value(scope)] as const));
    if (spreadKeywords !== null) spread(named, spreadKeywords(scope));
    return [values, named];
  };
}

function spread(named: Map<string, Value>, source: Value): void {
  if (!(source instanceof Dict)) throw new TemplateError("the argument after ** must be a mapping");
  for (const [key, value] of source.entries()) {
    const name = textOf(key);
    if (name === undefined) throw new TemplateError("keywords must be strings");
    if (named.has(name)) throw new TemplateError(`got multiple values for keyword argument '${name}'`);
    named.set(name, value);
  }
}

function compileCall(calleeSource: Expression, operandSource: CallOperands): Evaluate {
  const callee = compileExpression(calleeSource);
  const operands = compileOperands(operandSource);
  return (scope) => {
    const target = callee(scope);
    const [args, keywords] = operands(scope);
    return callValue(scope.run, target, args, keywords);
  };
}

export function callValue(run: Run, target: Value, args: Arguments, keywords: Keywords): Value {
  run.step();
  if (target instanceof Callable) return target.call(run, args, keywords);
  if (target instanceof Undefined) target.fail();
  throw new TemplateError(`'${typeName(target)}' object is not callable`);
}

function compileFilter(expression: Of<"filter">): Evaluate {
  if (expression.input === null) throw new TemplateError("a filter block's filter was compiled as an expression");
  const input = compileExpression(expression.input);
  const apply = compileFilterStep(expression);
  return (scope) => apply(scope, input(scope));
}

/** One filter without its input. */
function compileFilterStep(expression: Of<"filter">): (scope: Scope, input: Value) => Value {
  const operands = compileOperands(expression.operands);
  const { name } = expression;
  return (scope, input) => {
    scope.run.step();
    const [args, keywords] = operands(scope);
    return findFilter(name)(scope.run, input, args, keywords);
  };
}

/** A chain of filters that begins with a block's text. */
export function compileFilterChain(expression: Expression): (scope: Scope, input: Value) => Value {
  if (expression.kind !== "filter") throw new TemplateError("expected a filter");
  const apply = compileFilterStep(expression);
  if (expression.input === null) return apply;
  const before = compileFilterChain(expression.input);
  return (scope, input) => apply(scope, before(scope, input));
}

function compileTest(expression: Of<"test">): Evaluate {
  const input = compileExpression(expression.input);
  const operands = compileOperands(expression.operands);
  const { name } = expression;
  return (scope) => {
    const value = input(scope);
    const [args, keywords] = operands(scope);
    return findTest(name)(scope.run, value, args, keywords);
  };
}

function compileUnary(operator: "-" | "+" | "not", operand: Evaluate): Evaluate {
  switch (operator) {
    case "not":
      return (scope) => !truth(operand(scope));
    case "-":
      return (scope) => negate(operand(scope));
    case "+":
      return (scope) => positive(operand(scope));
  }
}

type BinaryFunction = (run: Run, left: Value, right: Value) => Value;

const BINARY: Readonly<Record<BinaryOperator, BinaryFunction>> = {
  "+": add,
  "-": (_run, left, right) => subtract(left, right),
  "*": multiply,
  "/": (_run, left, right) => divide(left, right),
  "//": (_run, left, right) => floorDivide(left, right),
  "%": modulo,
  "**": (_run, left, right) => power(left, right),
};

function compileBinary(operator: BinaryOperator, left: Evaluate, right: Evaluate): Evaluate {
  const apply = BINARY[operator];
  return (scope) => apply(scope.run, left(scope), right(scope));
}

function compileConcat(parts: readonly Evaluate[]): Evaluate {
  return (scope) => {
    let text = "";
    for (const part of parts) text += toText(part(scope));
    checkLength(text.length);
    scope.run.charge(text.length);
    return text;
  };
}

function holds(run: Run, operator: CompareOperator, left: Value, right: Value): boolean {
  switch (operator) {
    case "==":
      return equals(left, right);
    case "!=":
      return !equals(left, right);
    case "in":
      return contains(run, right, left);
    case "not in":
      return !contains(run, right, left);
    default:
      return ordered(operator, left, right);
  }
}

function compileCompare(expression: Of<"compare">): Evaluate {
  const first = compileExpression(expression.first);
  const rest = expression.rest.map(([operator, operand]) => [operator, compileExpression(operand)] as const);
  return (scope) => {
    let left = first(scope);
    for (const [operator, operand] of rest) {
      const right = operand(scope);
      if (!holds(scope.run, operator, left, right)) return false;
      left = right;
    }
    return true;
  };
}

function compileLogic(expression: Of<"logic">): Evaluate {
  const left = compileExpression(expression.left);
  const right = compileExpression(expression.right);
  const stopsAt = expression.operator === "or";
  return (scope) => {
    const value = left(scope);
    return truth(value) === stopsAt ? value : right(scope);
  };
}

function compileConditional(expression: Of<"conditional">): Evaluate {
  const test = compileExpression(expression.test);
  const whenTrue = compileExpression(expression.whenTrue);
  const otherwise = expression.otherwise === null ? null : compileExpression(expression.otherwise);
  return (scope) => {
    if (truth(test(scope))) return whenTrue(scope);
    return otherwise === null ? absent() : otherwise(scope);
  };
}

/** The inline if without else whose condition is false. */
function absent(): Value {
  return new Undefined("an inline if-expression without else evaluated to false");
}
