/** Statements: the tags of Jinja2, of its loop controls, and the `generation` block of chat templates. */
import type { Expression, MacroDefinition, Parameter, Statement } from "./ast.ts";
import { tokenize } from "./lexer.ts";
import { nested, parseExpression, parseFilterChain, parseTuple, parseUnconditional } from "./parse-expression.ts";
import { parseAssignableName, parseTarget } from "./parse-primary.ts";
import { type Token, TokenStream } from "./tokens.ts";

/** Template text → statements. Throws `TemplateError` with the line. */
export function parseTemplate(source: string): Statement[] {
  const stream = new TokenStream(tokenize(source));
  return parseBody(stream, { endTags: [], opener: null, loops: 0 });
}

interface Context {
  /** Tags that end the body being parsed; the stream is left on the tag's name. */
  readonly endTags: readonly string[];
  readonly opener: Token | null;
  /** Loops around, within the same macro: where `break` is allowed. */
  readonly loops: number;
}

function parseBody(stream: TokenStream, context: Context): Statement[] {
  return nested(stream, () => {
    const statements: Statement[] = [];
    for (;;) {
      const token = stream.current;
      if (token.type === "data") {
        statements.push({ kind: "text", text: stream.next().value });
      } else if (token.type === "variable_begin") {
        stream.next();
        statements.push({ kind: "output", line: token.line, expression: parseTuple(stream) });
        stream.expect("variable_end");
      } else if (token.type === "block_begin") {
        stream.next();
        if (context.endTags.length > 0 && stream.isName(...context.endTags)) return statements;
        statements.push(parseTag(stream, context.loops));
        stream.expect("block_end");
      } else if (context.opener !== null) {
        throw stream.error(`the template ends inside '{% ${context.opener.value} %}' of line ${context.opener.line}`);
      } else {
        return statements;
      }
    }
  });
}

/** `%}` body, up to one of `endTags`, whose name is left to be read. */
function parseUntil(stream: TokenStream, opener: Token, endTags: readonly string[], loops: number): Statement[] {
  stream.skip("operator", ":");
  stream.expect("block_end");
  return parseBody(stream, { endTags, opener, loops });
}

function parseBlock(stream: TokenStream, opener: Token, endTag: string, loops: number): Statement[] {
  const body = parseUntil(stream, opener, [endTag], loops);
  stream.next();
  return body;
}

function parseTag(stream: TokenStream, loops: number): Statement {
  const tag = stream.expect("name");
  const { line } = tag;
  switch (tag.value) {
    case "if":
      return parseIf(stream, tag, loops);
    case "for":
      return parseFor(stream, tag, loops);
    case "set":
      return parseSet(stream, tag);
    case "with":
      return parseWith(stream, tag, loops);
    case "macro":
      return { kind: "macro", line, macro: parseMacro(stream, tag) };
    case "call":
      return parseCallBlock(stream, tag);
    case "filter":
      return parseFilterBlock(stream, tag);
    case "print":
      return parsePrint(stream, line);
    case "generation":
      return { kind: "scope", line, body: parseBlock(stream, tag, "endgeneration", 0) };
    case "break":
    case "continue":
      if (loops === 0) throw stream.error(`'${tag.value}' outside of a loop`);
      return { kind: tag.value, line };
    default:
      throw stream.error(`unknown tag '${tag.value}'`);
  }
}

function parsePrint(stream: TokenStream, line: number): Statement {
  const parts: Expression[] = [];
  while (!stream.is("block_end")) {
    if (parts.length > 0) stream.expect("operator", ",");
    parts.push(parseExpression(stream));
  }
  return { kind: "output", line, expression: { kind: "concat", parts } };
}

function parseIf(stream: TokenStream, tag: Token, loops: number): Statement {
  const branches: { readonly test: Expression; readonly body: readonly Statement[] }[] = [];
  let otherwise: readonly Statement[] = [];
  for (;;) {
    const test = parseTuple(stream, { conditional: false });
    branches.push({ test, body: parseUntil(stream, tag, ["elif", "else", "endif"], loops) });
    const end = stream.next().value;
    if (end === "elif") continue;
    if (end === "else") otherwise = parseBlock(stream, tag, "endif", loops);
    return { kind: "if", line: tag.line, branches, otherwise };
  }
}

function parseFor(stream: TokenStream, tag: Token, loops: number): Statement {
  const target = parseTarget(stream, { endNames: ["in"] });
  stream.expect("name", "in");
  const iterable = parseTuple(stream, { conditional: false, endNames: ["recursive"] });
  const condition = stream.skip("name", "if") ? parseExpression(stream) : null;
  const recursive = stream.skip("name", "recursive");
  const body = parseUntil(stream, tag, ["endfor", "else"], loops + 1);
  const otherwise = stream.next().value === "else" ? parseBlock(stream, tag, "endfor", loops) : [];
  return { kind: "for", line: tag.line, target, iterable, condition, recursive, body, otherwise };
}

function parseSet(stream: TokenStream, tag: Token): Statement {
  const target = parseTarget(stream, { members: true });
  if (stream.skip("operator", "=")) return { kind: "set", line: tag.line, target, value: parseTuple(stream) };
  const filter = parseFilterChain(stream, false);
  return { kind: "set_block", line: tag.line, target, filter, body: parseBlock(stream, tag, "endset", 0) };
}

function parseWith(stream: TokenStream, tag: Token, loops: number): Statement {
  const bindings: ReturnType<typeof parseBinding>[] = [];
  while (!stream.is("block_end")) {
    if (bindings.length > 0) stream.expect("operator", ",");
    bindings.push(parseBinding(stream));
  }
  return { kind: "with", line: tag.line, bindings, body: parseBlock(stream, tag, "endwith", loops) };
}

function parseBinding(stream: TokenStream) {
  const name = parseAssignableName(stream);
  stream.expect("operator", "=");
  return [{ kind: "name", name }, parseExpression(stream)] as const;
}

function parseMacro(stream: TokenStream, tag: Token): MacroDefinition {
  const name = parseAssignableName(stream);
  const parameters = parseParameters(stream);
  return { name, parameters, body: parseBlock(stream, tag, "endmacro", 0) };
}

function parseParameters(stream: TokenStream): Parameter[] {
  stream.expect("operator", "(");
  const parameters: Parameter[] = [];
  while (!stream.isOperator(")")) {
    if (parameters.length > 0) stream.expect("operator", ",");
    const name = parseAssignableName(stream);
    const fallback = stream.skip("operator", "=") ? parseExpression(stream) : null;
    if (fallback === null && parameters.some((parameter) => parameter.fallback !== null)) {
      throw stream.error(`parameter '${name}' without a default follows one with a default`);
    }
    parameters.push({ name, fallback });
  }
  stream.expect("operator", ")");
  return parameters;
}

function parseCallBlock(stream: TokenStream, tag: Token): Statement {
  const parameters = stream.isOperator("(") ? parseParameters(stream) : [];
  const call = parseUnconditional(stream);
  if (call.kind !== "call") throw stream.error("expected a call after 'call'");
  const body = parseBlock(stream, tag, "endcall", 0);
  return { kind: "call_block", line: tag.line, call, caller: { name: "caller", parameters, body } };
}

function parseFilterBlock(stream: TokenStream, tag: Token): Statement {
  const filter = parseFilterChain(stream, true);
  if (filter === null) throw stream.error("expected a filter");
  return { kind: "filter_block", line: tag.line, filter, body: parseBlock(stream, tag, "endfilter", 0) };
}
