/** The atoms of an expression, what can hang on them in brackets, and assignment targets. */
import type { CallOperands, Expression, Target } from "./ast.ts";
import { TemplateError } from "./errors.ts";
import { INTEGER_BITS_MAX } from "./limits.ts";
import { parseExpression, parseTuple } from "./parse-expression.ts";
import type { TokenStream } from "./tokens.ts";

const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

export function parsePrimary(stream: TokenStream): Expression {
  const token = stream.current;
  switch (token.type) {
    case "name": {
      stream.next();
      const constant = CONSTANTS.get(token.value);
      return constant === undefined ? { kind: "name", name: token.value } : { kind: "constant", value: constant };
    }
    case "string": {
      const parts: string[] = [];
      while (stream.is("string")) parts.push(stream.next().value);
      return { kind: "constant", value: parts.join("") };
    }
    case "integer":
      stream.next();
      return { kind: "constant", value: parseInteger(token.value, token.line) };
    case "float":
      stream.next();
      return { kind: "constant", value: Number(token.value) };
    default:
      return parseBracketed(stream);
  }
}

function parseInteger(digits: string, line: number): bigint {
  // Four bits a digit is the most that any of the radices needs.
  if (digits.length * 4 > INTEGER_BITS_MAX) throw new TemplateError("an integer is too large").at(line);
  return BigInt(digits.toLowerCase());
}

function parseBracketed(stream: TokenStream): Expression {
  if (stream.skip("operator", "(")) {
    const expression = parseTuple(stream, { bracketed: true });
    stream.expect("operator", ")");
    return expression;
  }
  if (stream.skip("operator", "[")) return { kind: "list", items: parseItems(stream, "]", parseExpression) };
  if (stream.skip("operator", "{")) return { kind: "dict", entries: parseItems(stream, "}", parseEntry) };
  throw stream.error(`unexpected ${stream.describeCurrent()}`);
}

function parseItems<T>(stream: TokenStream, closer: string, parse: (stream: TokenStream) => T): T[] {
  const items: T[] = [];
  while (!stream.isOperator(closer)) {
    if (items.length > 0) stream.expect("operator", ",");
    if (stream.isOperator(closer)) break;
    items.push(parse(stream));
  }
  stream.expect("operator", closer);
  return items;
}

function parseEntry(stream: TokenStream): readonly [Expression, Expression] {
  const key = parseExpression(stream);
  stream.expect("operator", ":");
  return [key, parseExpression(stream)];
}

/** `.name`, `.0`, `[index]` or `[a:b:c]` behind `object`. */
export function parseSubscript(stream: TokenStream, object: Expression): Expression {
  if (stream.skip("operator", ".")) {
    if (!stream.is("integer")) return { kind: "attribute", object, name: stream.expect("name").value };
    const token = stream.next();
    return { kind: "item", object, index: { kind: "constant", value: parseInteger(token.value, token.line) } };
  }
  stream.expect("operator", "[");
  const parts: Expression[] = [];
  let slice: Expression | null = null;
  while (!stream.isOperator("]")) {
    if (parts.length > 0 || slice !== null) stream.expect("operator", ",");
    if (slice !== null) throw stream.error("a slice cannot be combined with other indices");
    const part = parseIndex(stream, object);
    if (part.kind === "slice" && part.object === object) slice = part;
    else parts.push(part);
  }
  stream.expect("operator", "]");
  if (slice !== null) return slice;
  const [first] = parts;
  if (first === undefined) throw stream.error("expected an index");
  return { kind: "item", object, index: parts.length === 1 ? first : { kind: "tuple", items: parts } };
}

function parseIndex(stream: TokenStream, object: Expression): Expression {
  const start = stream.isOperator(":") ? null : parseExpression(stream);
  if (!stream.isOperator(":")) {
    if (start === null) throw stream.error("expected an index");
    return start;
  }
  stream.next();
  const stop = isSliceEnd(stream) || stream.isOperator(":") ? null : parseExpression(stream);
  const step = stream.skip("operator", ":") && !isSliceEnd(stream) ? parseExpression(stream) : null;
  return { kind: "slice", object, start, stop, step };
}

function isSliceEnd(stream: TokenStream): boolean {
  return stream.isOperator("]", ",");
}

/** `(a, b, key=c, *d, **e)`. */
export function parseOperands(stream: TokenStream): CallOperands {
  stream.expect("operator", "(");
  const args: Expression[] = [];
  const keywords: (readonly [string, Expression])[] = [];
  let spreadArgs: Expression | null = null;
  let spreadKeywords: Expression | null = null;
  for (let first = true; !stream.isOperator(")"); first = false) {
    if (!first) {
      stream.expect("operator", ",");
      if (stream.isOperator(")")) break;
    }
    if (spreadKeywords !== null) throw stream.error("nothing may follow '**' in a call");
    if (stream.isOperator("*")) {
      if (spreadArgs !== null) throw stream.error("only one '*' is allowed in a call");
      stream.next();
      spreadArgs = parseExpression(stream);
    } else if (stream.skip("operator", "**")) {
      spreadKeywords = parseExpression(stream);
    } else if (stream.is("name") && stream.following.type === "operator" && stream.following.value === "=") {
      const name = stream.next().value;
      stream.next();
      if (keywords.some(([known]) => known === name)) throw stream.error(`keyword argument '${name}' is repeated`);
      keywords.push([name, parseExpression(stream)]);
    } else {
      if (keywords.length > 0 || spreadArgs !== null) throw stream.error("a positional argument must come first");
      args.push(parseExpression(stream));
    }
  }
  stream.expect("operator", ")");
  return { args, keywords, spreadArgs, spreadKeywords };
}

export interface TargetOptions {
  /** `ns.member` is allowed. */
  readonly members?: boolean;
  /** Names that end the target. */
  readonly endNames?: readonly string[];
}

/** A name, a namespace's member, or a tuple of such, with or without brackets. */
export function parseTarget(stream: TokenStream, options: TargetOptions = {}): Target {
  const items: Target[] = [];
  let isTuple = false;
  for (;;) {
    items.push(parseSingleTarget(stream, options));
    if (!stream.skip("operator", ",")) break;
    isTuple = true;
    if (stream.isOperator("=", ")") || stream.is("block_end") || stream.isName(...(options.endNames ?? []))) break;
  }
  const [first] = items;
  return isTuple || first === undefined ? { kind: "tuple", items } : first;
}

function parseSingleTarget(stream: TokenStream, options: TargetOptions): Target {
  if (stream.skip("operator", "(")) {
    const target = parseTarget(stream, { members: options.members ?? false });
    stream.expect("operator", ")");
    return target;
  }
  const name = parseAssignableName(stream);
  if (options.members !== true || !stream.skip("operator", ".")) return { kind: "name", name };
  return { kind: "member", object: name, name: stream.expect("name").value };
}

export function parseAssignableName(stream: TokenStream): string {
  const name = stream.expect("name").value;
  if (CONSTANTS.has(name)) throw stream.error(`cannot assign to '${name}'`);
  return name;
}
