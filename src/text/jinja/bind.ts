/** Python's binding of positional and keyword arguments to the parameters of a built-in. */
import { truth } from "./compare.ts";
import { toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { numberOf } from "./operators.ts";
import { type Arguments, type Keywords, textOf, typeName, Undefined, type Value } from "./values.ts";

/** Arguments by parameter name; each `take` gives the value or undefined if it was not passed. */
export class Bound {
  private readonly values = new Map<string, Value>();

  /** `parameters`: names in order, a `?` behind those that may be absent. */
  constructor(
    private readonly callee: string,
    parameters: readonly string[],
    args: Arguments,
    keywords: Keywords,
  ) {
    const names = parameters.map((parameter) => parameter.replace("?", ""));
    if (args.length > names.length) {
      throw new TemplateError(`${callee}() takes at most ${names.length} argument(s), got ${args.length}`);
    }
    for (const [index, value] of args.entries()) this.values.set(names[index] ?? "", value);
    for (const [name, value] of keywords) {
      if (!names.includes(name)) throw new TemplateError(`${callee}() got an unexpected keyword argument '${name}'`);
      if (this.values.has(name)) throw new TemplateError(`${callee}() got multiple values for argument '${name}'`);
      this.values.set(name, value);
    }
    for (const name of parameters) {
      if (!name.endsWith("?") && !this.values.has(name)) {
        throw new TemplateError(`${callee}() missing required argument '${name}'`);
      }
    }
  }

  optional(name: string): Value | undefined {
    return this.values.get(name);
  }

  /** The argument as it was passed, or the fallback if it was not. */
  value(name: string, fallback: Value = null): Value {
    const value = this.values.get(name);
    return value === undefined ? fallback : value;
  }

  /** A str argument. */
  text(name: string, fallback?: string): string {
    const value = this.values.get(name);
    if (value === undefined && fallback !== undefined) return fallback;
    const text = value === undefined ? undefined : textOf(value);
    if (text !== undefined) return text;
    if (value instanceof Undefined) value.fail();
    throw new TemplateError(`${this.callee}() argument '${name}' must be str, not ${typeName(value ?? null)}`);
  }

  /** A str argument for which None means absent. */
  textOrNull(name: string): string | null {
    const value = this.values.get(name);
    return value === undefined || value === null ? null : this.text(name);
  }

  /** Any argument as `str()` of it. */
  shown(name: string, fallback: string): string {
    const value = this.values.get(name);
    return value === undefined ? fallback : toText(value);
  }

  /** An int argument, clamped to what an array index can be. */
  integer(name: string, fallback?: number): number {
    const value = this.values.get(name);
    if (value === undefined && fallback !== undefined) return fallback;
    const number = value === undefined ? undefined : numberOf(value);
    if (typeof number === "bigint") return clampIndex(number);
    if (value instanceof Undefined) value.fail();
    throw new TemplateError(`'${typeName(value ?? null)}' object cannot be interpreted as an integer`);
  }

  integerOrNull(name: string): number | null {
    const value = this.values.get(name);
    return value === undefined || value === null ? null : this.integer(name);
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.values.get(name);
    return value === undefined ? fallback : truth(value);
  }
}

/** A bigint as a number that is safe to add to an index. */
export function clampIndex(value: bigint): number {
  const bound = 2n ** 40n;
  return Number(value > bound ? bound : value < -bound ? -bound : value);
}
