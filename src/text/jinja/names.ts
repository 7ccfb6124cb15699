/** Which names a piece of a template reads, nested macros included. */
import type { CallOperands, Expression, Statement } from "./ast.ts";

/** Whether any expression inside reads the variable `name`. */
export function usesName(statements: readonly Statement[], name: string): boolean {
  return statements.some((statement) => statementUses(statement, name));
}

function statementUses(statement: Statement, name: string): boolean {
  const inBody = (body: readonly Statement[]) => usesName(body, name);
  const inside = (expression: Expression | null) => expression !== null && readsName(expression, name);
  switch (statement.kind) {
    case "text":
    case "break":
    case "continue":
      return false;
    case "output":
      return inside(statement.expression);
    case "if":
      return (
        statement.branches.some((branch) => inside(branch.test) || inBody(branch.body)) || inBody(statement.otherwise)
      );
    case "for":
      return (
        inside(statement.iterable) ||
        inside(statement.condition) ||
        inBody(statement.body) ||
        inBody(statement.otherwise)
      );
    case "set":
      return inside(statement.value);
    case "set_block":
    case "filter_block":
      return inside(statement.filter) || inBody(statement.body);
    case "with":
      return statement.bindings.some(([, value]) => inside(value)) || inBody(statement.body);
    case "macro":
      return inBody(statement.macro.body);
    case "call_block":
      return inside(statement.call) || inBody(statement.caller.body);
    case "scope":
      return inBody(statement.body);
  }
}

function readsName(expression: Expression, name: string): boolean {
  if (expression.kind === "name") return expression.name === name;
  return children(expression).some((child) => readsName(child, name));
}

function children(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case "constant":
    case "name":
      return [];
    case "list":
    case "tuple":
      return expression.items;
    case "dict":
      return expression.entries.flat();
    case "attribute":
      return [expression.object];
    case "item":
      return [expression.object, expression.index];
    case "slice":
      return present(expression.object, expression.start, expression.stop, expression.step);
    case "call":
      return [expression.callee, ...operandsOf(expression.operands)];
    case "filter":
    case "test":
      return [...present(expression.input), ...operandsOf(expression.operands)];
    case "unary":
      return [expression.operand];
    case "binary":
    case "logic":
      return [expression.left, expression.right];
    case "concat":
      return expression.parts;
    case "compare":
      return [expression.first, ...expression.rest.map(([, operand]) => operand)];
    case "conditional":
      return present(expression.test, expression.whenTrue, expression.otherwise);
  }
}

function operandsOf(operands: CallOperands): readonly Expression[] {
  const keywords = operands.keywords.map(([, value]) => value);
  return [...operands.args, ...keywords, ...present(operands.spreadArgs, operands.spreadKeywords)];
}

function present(...expressions: readonly (Expression | null)[]): readonly Expression[] {
  return expressions.filter((expression) => expression !== null);
}
