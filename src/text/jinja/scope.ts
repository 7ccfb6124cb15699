/** Variables of a template: a chain of scopes, innermost first; what is assigned stays in the scope of the block. */
import type { Run } from "./run.ts";
import { Undefined, type Value } from "./values.ts";

export class Scope {
  private readonly variables = new Map<string, Value>();

  constructor(
    readonly run: Run,
    readonly parent: Scope | ReadonlyMap<string, Value>,
  ) {}

  /** A scope inside this one. */
  inner(): Scope {
    return new Scope(this.run, this);
  }

  get(name: string): Value {
    const value = this.find(name);
    return value === undefined ? new Undefined(`'${name}' is undefined`) : value;
  }

  set(name: string, value: Value): void {
    this.variables.set(name, value);
  }

  private find(name: string): Value | undefined {
    let scope: Scope = this;
    for (;;) {
      const value = scope.variables.get(name);
      if (value !== undefined) return value;
      const { parent } = scope;
      if (!(parent instanceof Scope)) return parent.get(name);
      scope = parent;
    }
  }
}
