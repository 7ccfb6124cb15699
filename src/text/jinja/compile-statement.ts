/** Statements → closures that write to the run and say whether a loop is to be left. */
import type { ForStatement, Statement, Target } from "./ast.ts";
import { iterate, truth } from "./compare.ts";
import { callValue, compileExpression, compileFilterChain, compileOperands } from "./compile-expression.ts";
import { toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { Loop } from "./loop.ts";
import { compileMacro } from "./macro.ts";
import type { Scope } from "./scope.ts";
import { Namespace, type Value } from "./values.ts";

export type Signal = "next" | "break" | "continue";
export type Execute = (scope: Scope) => Signal;

export function compileBody(statements: readonly Statement[]): Execute {
  const compiled = statements.map(compileStatement);
  return (scope) => {
    for (const execute of compiled) {
      const signal = execute(scope);
      if (signal !== "next") return signal;
    }
    return "next";
  };
}

function compileStatement(statement: Statement): Execute {
  if (statement.kind === "text") {
    const { text } = statement;
    return (scope) => {
      scope.run.write(text);
      return "next";
    };
  }
  const { line } = statement;
  const execute = compileTag(statement);
  return (scope) => {
    scope.run.line = line;
    scope.run.step();
    return execute(scope);
  };
}

function compileTag(statement: Exclude<Statement, { readonly kind: "text" }>): Execute {
  switch (statement.kind) {
    case "output": {
      const expression = compileExpression(statement.expression);
      return doing((scope) => scope.run.write(toText(expression(scope))));
    }
    case "if":
      return compileIf(statement);
    case "for":
      return compileFor(statement);
    case "break":
    case "continue":
      return () => statement.kind;
    case "set": {
      const assign = compileTarget(statement.target);
      const value = compileExpression(statement.value);
      return doing((scope) => assign(scope, value(scope)));
    }
    case "set_block":
      return compileSetBlock(statement);
    case "with":
      return compileWith(statement);
    case "macro": {
      const make = compileMacro(statement.macro);
      const { name } = statement.macro;
      return doing((scope) => scope.set(name, make(scope)));
    }
    case "call_block":
      return compileCallBlock(statement);
    case "filter_block": {
      const body = compileBody(statement.body);
      const filter = compileFilterChain(statement.filter);
      return doing((scope) => scope.run.write(toText(filter(scope, captured(scope, body)))));
    }
    case "scope": {
      const body = compileBody(statement.body);
      return (scope) => body(scope.inner());
    }
  }
}

type Of<Kind extends Statement["kind"]> = Extract<Statement, { readonly kind: Kind }>;

function doing(action: (scope: Scope) => void): Execute {
  return (scope) => {
    action(scope);
    return "next";
  };
}

/** What `body` writes, in a scope of its own. */
function captured(scope: Scope, body: Execute): string {
  return scope.run.capture(() => body(scope.inner()));
}

function compileIf(statement: Of<"if">): Execute {
  const branches = statement.branches.map((branch) => ({
    test: compileExpression(branch.test),
    body: compileBody(branch.body),
  }));
  const otherwise = compileBody(statement.otherwise);
  return (scope) => {
    for (const { test, body } of branches) if (truth(test(scope))) return body(scope);
    return otherwise(scope);
  };
}

function compileSetBlock(statement: Of<"set_block">): Execute {
  const assign = compileTarget(statement.target);
  const body = compileBody(statement.body);
  const filter = statement.filter === null ? null : compileFilterChain(statement.filter);
  return doing((scope) => {
    const text = captured(scope, body);
    assign(scope, filter === null ? text : filter(scope, text));
  });
}

function compileWith(statement: Of<"with">): Execute {
  const bindings = statement.bindings.map(
    ([target, value]) => [compileTarget(target), compileExpression(value)] as const,
  );
  const body = compileBody(statement.body);
  return (scope) => {
    const inner = scope.inner();
    for (const [assign, value] of bindings) assign(inner, value(scope));
    return body(inner);
  };
}

function compileCallBlock(statement: Of<"call_block">): Execute {
  const makeCaller = compileMacro(statement.caller);
  const callee = compileExpression(statement.call.callee);
  const operands = compileOperands(statement.call.operands);
  return doing((scope) => {
    const target = callee(scope);
    const [args, keywords] = operands(scope);
    const withCaller = new Map([...keywords, ["caller", makeCaller(scope)] as const]);
    scope.run.write(toText(callValue(scope.run, target, args, withCaller)));
  });
}

function compileTarget(target: Target): (scope: Scope, value: Value) => void {
  switch (target.kind) {
    case "name":
      return (scope, value) => scope.set(target.name, value);
    case "member":
      return (scope, value) => {
        const owner = scope.get(target.object);
        if (!(owner instanceof Namespace)) throw new TemplateError("cannot assign attribute on non-namespace object");
        owner.members.set(target.name, value);
      };
    case "tuple": {
      const parts = target.items.map(compileTarget);
      return (scope, value) => {
        const values = Array.from(iterate(value));
        if (values.length !== parts.length) {
          throw new TemplateError(`cannot unpack ${values.length} values into ${parts.length} names`);
        }
        for (const [index, assign] of parts.entries()) assign(scope, values[index] ?? null);
      };
    }
  }
}

function compileFor(statement: ForStatement): Execute {
  const assign = compileTarget(statement.target);
  const iterable = compileExpression(statement.iterable);
  const condition = statement.condition === null ? null : compileExpression(statement.condition);
  const body = compileBody(statement.body);
  const otherwise = compileBody(statement.otherwise);

  function* chosen(scope: Scope, items: Iterable<Value>): Iterable<Value> {
    for (const item of items) {
      scope.run.step();
      if (condition !== null) {
        const inner = scope.inner();
        assign(inner, item);
        if (!truth(condition(inner))) continue;
      }
      yield item;
    }
  }

  function execute(scope: Scope, source: Value, depth: number): Signal {
    const recurse = (inner: Value, level: number) =>
      scope.run.nested(() => scope.run.capture(() => execute(scope, inner, level)));
    const items = chosen(scope, iterate(source))[Symbol.iterator]();
    const loop = new Loop(items, depth, statement.recursive ? recurse : null);
    for (let count = 0; ; count += 1) {
      const item = loop.advance();
      if (item === undefined) return count === 0 ? otherwise(scope.inner()) : "next";
      const inner = scope.inner();
      inner.set("loop", loop);
      assign(inner, item);
      if (body(inner) === "break") return "next";
    }
  }

  return (scope) => execute(scope, iterable(scope), 0);
}
