/**
 * Expressions, by Jinja2's grammar. From loose to tight:
 * `a if b else c` · or · and · not · comparisons, in · + - · ~ · * / // % · ** · unary · filters and tests · . [] ().
 */
import type { BinaryOperator, CallOperands, CompareOperator, Expression } from "./ast.ts";
import { CHAIN_MAX, NESTING_MAX } from "./limits.ts";
import { parseOperands, parsePrimary, parseSubscript } from "./parse-primary.ts";
import type { TokenStream } from "./tokens.ts";

const NO_OPERANDS: CallOperands = { args: [], keywords: [], spreadArgs: null, spreadKeywords: null };
const COMPARISONS: readonly CompareOperator[] = ["==", "!=", "<", "<=", ">", ">="];

/** Nesting of the stream that is being parsed; kept per stream so that parsers do not share it. */
const nesting = new WeakMap<TokenStream, number>();

/** Runs `parse` one level deeper and refuses sources nested so deeply that the stack would not hold them. */
export function nested<T>(stream: TokenStream, parse: () => T): T {
  const depth = (nesting.get(stream) ?? 0) + 1;
  if (depth > NESTING_MAX) throw stream.error(`the template is nested deeper than ${NESTING_MAX} levels`);
  nesting.set(stream, depth);
  try {
    return parse();
  } finally {
    nesting.set(stream, depth - 1);
  }
}

export function parseExpression(stream: TokenStream): Expression {
  return nested(stream, () => parseConditional(stream));
}

/** Without `a if b else c`: where a following `if` belongs to the statement. */
export function parseUnconditional(stream: TokenStream): Expression {
  return nested(stream, () => parseOr(stream));
}

export interface TupleOptions {
  readonly conditional?: boolean;
  /** Names that end the tuple besides `)`, `}}` and `%}`. */
  readonly endNames?: readonly string[];
  /** `()` is a tuple; without brackets an expression must be there. */
  readonly bracketed?: boolean;
}

/** One expression, or a tuple if a comma follows. */
export function parseTuple(stream: TokenStream, options: TupleOptions = {}): Expression {
  const parse = options.conditional === false ? parseUnconditional : parseExpression;
  const items: Expression[] = [];
  let isTuple = false;
  for (;;) {
    if (items.length > 0) stream.expect("operator", ",");
    if (isTupleEnd(stream, options.endNames ?? [])) break;
    items.push(parse(stream));
    if (!stream.isOperator(",")) break;
    isTuple = true;
  }
  const [first] = items;
  if (!isTuple && first !== undefined) return first;
  if (!isTuple && options.bracketed !== true) {
    throw stream.error(`expected an expression, got ${stream.describeCurrent()}`);
  }
  return { kind: "tuple", items };
}

function isTupleEnd(stream: TokenStream, endNames: readonly string[]): boolean {
  return stream.is("variable_end") || stream.is("block_end") || stream.isOperator(")") || stream.isName(...endNames);
}

function parseConditional(stream: TokenStream): Expression {
  let expression = parseOr(stream);
  for (let length = 0; stream.skip("name", "if"); length += 1) {
    checkChain(stream, length);
    const test = parseOr(stream);
    const otherwise = stream.skip("name", "else") ? nested(stream, () => parseConditional(stream)) : null;
    expression = { kind: "conditional", test, whenTrue: expression, otherwise };
  }
  return expression;
}

function parseOr(stream: TokenStream): Expression {
  return parseLogic(stream, "or", (inner) => parseLogic(inner, "and", parseNot));
}

function parseLogic(
  stream: TokenStream,
  operator: "and" | "or",
  parse: (stream: TokenStream) => Expression,
): Expression {
  let left = parse(stream);
  for (let length = 0; stream.skip("name", operator); length += 1) {
    checkChain(stream, length);
    left = { kind: "logic", operator, left, right: parse(stream) };
  }
  return left;
}

function parseNot(stream: TokenStream): Expression {
  if (!stream.skip("name", "not")) return parseCompare(stream);
  return nested(stream, () => ({ kind: "unary", operator: "not", operand: parseNot(stream) }));
}

function parseCompare(stream: TokenStream): Expression {
  const first = parseSum(stream);
  const rest: (readonly [CompareOperator, Expression])[] = [];
  for (;;) {
    const operator = takeComparison(stream);
    if (operator === null) break;
    rest.push([operator, parseSum(stream)]);
  }
  return rest.length === 0 ? first : { kind: "compare", first, rest };
}

function takeComparison(stream: TokenStream): CompareOperator | null {
  const comparison = COMPARISONS.find((candidate) => stream.isOperator(candidate));
  if (comparison !== undefined) {
    stream.next();
    return comparison;
  }
  if (stream.skip("name", "in")) return "in";
  if (stream.isName("not") && stream.following.type === "name" && stream.following.value === "in") {
    stream.next();
    stream.next();
    return "not in";
  }
  return null;
}

function parseSum(stream: TokenStream): Expression {
  return parseChain(stream, ["+", "-"], parseConcat);
}

function parseConcat(stream: TokenStream): Expression {
  const first = parseProduct(stream);
  if (!stream.isOperator("~")) return first;
  const parts = [first];
  while (stream.skip("operator", "~")) parts.push(parseProduct(stream));
  return { kind: "concat", parts };
}

function parseProduct(stream: TokenStream): Expression {
  return parseChain(stream, ["*", "/", "//", "%"], parsePower);
}

function parsePower(stream: TokenStream): Expression {
  return parseChain(stream, ["**"], parseUnary);
}

function parseChain(
  stream: TokenStream,
  operators: readonly BinaryOperator[],
  parse: (stream: TokenStream) => Expression,
): Expression {
  let left = parse(stream);
  for (let length = 0; ; length += 1) {
    const operator = operators.find((candidate) => stream.isOperator(candidate));
    if (operator === undefined) return left;
    checkChain(stream, length);
    stream.next();
    left = { kind: "binary", operator, left, right: parse(stream) };
  }
}

function parseUnary(stream: TokenStream): Expression {
  return parseFilters(stream, parseSigned(stream));
}

/** A sign binds tighter than filters: `-1|abs` is `(-1)|abs`. */
function parseSigned(stream: TokenStream): Expression {
  if (!stream.isOperator("-", "+")) return parsePostfix(stream, parsePrimary(stream));
  const operator = stream.next().value === "-" ? "-" : "+";
  const operand = nested(stream, () => parseSigned(stream));
  return parsePostfix(stream, { kind: "unary", operator, operand });
}

function parsePostfix(stream: TokenStream, start: Expression): Expression {
  let expression = start;
  for (let length = 0; ; length += 1) {
    checkChain(stream, length);
    if (stream.isOperator(".", "[")) expression = parseSubscript(stream, expression);
    else if (stream.isOperator("(")) expression = { kind: "call", callee: expression, operands: parseOperands(stream) };
    else return expression;
  }
}

function parseFilters(stream: TokenStream, start: Expression): Expression {
  let expression = start;
  for (let length = 0; ; length += 1) {
    checkChain(stream, length);
    if (stream.isOperator("|")) expression = parseFilter(stream, expression);
    else if (stream.isName("is")) expression = parseTest(stream, expression);
    else if (stream.isOperator("(")) expression = { kind: "call", callee: expression, operands: parseOperands(stream) };
    else return expression;
  }
}

function parseFilter(stream: TokenStream, input: Expression): Expression {
  stream.expect("operator", "|");
  return parseNamedFilter(stream, input);
}

/** The chain of filters after `{% filter` or in `{% set x | … %}`; null if there is none. */
export function parseFilterChain(stream: TokenStream, startsWithName: boolean): Expression | null {
  let expression: Expression | null = startsWithName ? parseNamedFilter(stream, null) : null;
  for (let length = 0; stream.skip("operator", "|"); length += 1) {
    checkChain(stream, length);
    expression = parseNamedFilter(stream, expression);
  }
  return expression;
}

function parseNamedFilter(stream: TokenStream, input: Expression | null): Expression {
  const name = parseDottedName(stream);
  const operands = stream.isOperator("(") ? parseOperands(stream) : NO_OPERANDS;
  return { kind: "filter", name, input, operands };
}

function parseDottedName(stream: TokenStream): string {
  let name = stream.expect("name").value;
  while (stream.skip("operator", ".")) name += `.${stream.expect("name").value}`;
  return name;
}

function parseTest(stream: TokenStream, input: Expression): Expression {
  stream.expect("name", "is");
  const negated = stream.skip("name", "not");
  const name = parseDottedName(stream);
  const test: Expression = { kind: "test", name, input, operands: parseTestOperands(stream) };
  return negated ? { kind: "unary", operator: "not", operand: test } : test;
}

/** `is f(x, y)`, or one operand without brackets: `is f x`. */
function parseTestOperands(stream: TokenStream): CallOperands {
  if (stream.isOperator("(")) return parseOperands(stream);
  const { type } = stream.current;
  const startsOperand = type === "string" || type === "integer" || type === "float" || stream.isOperator("[", "{");
  if (!startsOperand && !(type === "name" && !stream.isName("else", "or", "and"))) return NO_OPERANDS;
  if (stream.isName("is")) throw stream.error("tests cannot be chained with 'is'");
  return { ...NO_OPERANDS, args: [parsePostfix(stream, parsePrimary(stream))] };
}

function checkChain(stream: TokenStream, length: number): void {
  if (length >= CHAIN_MAX) throw stream.error(`an expression has more than ${CHAIN_MAX} operators in a row`);
}
