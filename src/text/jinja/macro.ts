/** Macros and the `caller` of call blocks: functions whose value is what their body writes. */
import type { Expression, MacroDefinition, Statement } from "./ast.ts";
import { compileExpression } from "./compile-expression.ts";
import { compileBody, type Execute } from "./compile-statement.ts";
import { Dict } from "./dict.ts";
import { TemplateError } from "./errors.ts";
import { usesName } from "./names.ts";
import type { Scope } from "./scope.ts";
import { type Arguments, Callable, firstPresent, Tuple, Undefined, type Value } from "./values.ts";

/** Names that a macro's body may use to take more than its parameters. */
const EXTRAS = ["caller", "varargs", "kwargs"] as const;

class Macro extends Callable {
  override readonly typeName = "Macro";

  constructor(
    name: string,
    private readonly parameterNames: readonly string[],
    private readonly uses: Readonly<Record<(typeof EXTRAS)[number], boolean>>,
    call: Callable["call"],
  ) {
    super(name, call);
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case "name":
        return this.name;
      case "arguments":
        return new Tuple(this.parameterNames);
      case "catch_kwargs":
        return this.uses.kwargs;
      case "catch_varargs":
        return this.uses.varargs;
      case "caller":
        return this.uses.caller;
      default:
        return undefined;
    }
  }
}

/** Compiles a macro; the result makes the callable that closes over the scope of its definition. */
export function compileMacro(definition: MacroDefinition): (scope: Scope) => Callable {
  const { name } = definition;
  const body: Execute = compileBody(definition.body);
  const parameters = definition.parameters.map((parameter) => ({
    name: parameter.name,
    fallback: parameter.fallback === null ? null : compileExpression(parameter.fallback),
  }));
  const names = parameters.map((parameter) => parameter.name);
  const declared = (extra: string) => !names.includes(extra) && bodyUses(definition, extra);
  const uses = { caller: declared("caller"), varargs: declared("varargs"), kwargs: declared("kwargs") };

  return (definitionScope) =>
    new Macro(name, names, uses, (run, args, keywords) =>
      run.nested(() => {
        const scope = definitionScope.inner();
        const rest = new Map(keywords);
        for (const [index, parameter] of parameters.entries()) {
          if (args.length > index && rest.has(parameter.name)) {
            throw new TemplateError(`macro '${name}' got multiple values for argument '${parameter.name}'`);
          }
          const value = firstPresent(
            args[index],
            () => rest.get(parameter.name),
            () => parameter.fallback?.(scope),
          );
          rest.delete(parameter.name);
          const missing = new Undefined(`parameter '${parameter.name}' was not provided`);
          scope.set(parameter.name, value === undefined ? missing : value);
        }
        bindExtras(scope, name, uses, args.slice(parameters.length), rest);
        return run.capture(() => body(scope));
      }),
    );
}

function bodyUses(definition: MacroDefinition, name: string): boolean {
  const fallbacks = definition.parameters.flatMap((parameter): Expression[] =>
    parameter.fallback === null ? [] : [parameter.fallback],
  );
  return usesName([...definition.body, ...fallbacks.map(asOutput)], name);
}

function asOutput(expression: Expression): Statement {
  return { kind: "output", line: 0, expression };
}

function bindExtras(
  scope: Scope,
  macro: string,
  uses: Readonly<Record<(typeof EXTRAS)[number], boolean>>,
  surplus: Arguments,
  rest: Map<string, Value>,
): void {
  if (uses.caller) {
    const caller = rest.get("caller");
    scope.set("caller", caller === undefined ? new Undefined("no caller defined") : caller);
    rest.delete("caller");
  }
  if (uses.varargs) scope.set("varargs", new Tuple(surplus));
  else if (surplus.length > 0) throw new TemplateError(`macro '${macro}' takes fewer arguments than were given`);
  if (uses.kwargs) scope.set("kwargs", new Dict(rest));
  for (const name of uses.kwargs ? [] : rest.keys()) {
    throw new TemplateError(
      name === "caller"
        ? `macro '${macro}' was invoked with a caller that it does not use`
        : `macro '${macro}' takes no keyword argument '${name}'`,
    );
  }
}
