/**
 * Python's values as a template sees them. JavaScript's own types stand for the scalars:
 * null = None, boolean = bool, bigint = int, number = float, string = str (indexed by code points).
 * Everything else is a `PyObject`. Nothing here can be changed by a template but the members of a `Namespace`.
 */
import { TemplateError } from "./errors.ts";
import type { Run } from "./run.ts";

export type Value = null | boolean | bigint | number | string | PyObject;
export type Arguments = readonly Value[];
export type Keywords = ReadonlyMap<string, Value>;

export abstract class PyObject {
  /** Name of the Python type, for messages. */
  abstract readonly typeName: string;

  /** A data attribute or method by name; undefined (JavaScript's) if there is none. */
  attribute(_name: string): Value | undefined {
    return undefined;
  }

  /** `str()` of an object that is neither a container nor text. */
  display(): string {
    return `<${this.typeName}>`;
  }
}

/** A name, attribute or item that does not exist. Prints as "", is false and empty; any other use throws `complaint`. */
export class Undefined extends PyObject {
  readonly typeName = "Undefined";

  constructor(readonly complaint: string) {
    super();
  }

  fail(): never {
    throw new TemplateError(this.complaint);
  }

  override display(): string {
    return "Undefined";
  }
}

/** Text that counts as escaped: what is added to it is escaped. Made by `safe` and `escape`. */
export class Markup extends PyObject {
  readonly typeName = "Markup";

  constructor(readonly text: string) {
    super();
  }
}

export class List extends PyObject {
  readonly typeName = "list";

  constructor(readonly items: readonly Value[]) {
    super();
  }
}

export class Tuple extends PyObject {
  readonly typeName: string = "tuple";

  constructor(readonly items: readonly Value[]) {
    super();
  }
}

export class Range extends PyObject {
  readonly typeName = "range";
  readonly length: number;

  constructor(
    readonly start: bigint,
    readonly stop: bigint,
    readonly step: bigint,
  ) {
    super();
    const span = step > 0n ? stop - start + step - 1n : start - stop - step - 1n;
    const size = span / (step > 0n ? step : -step);
    this.length = size > 0n ? Number(size) : 0;
  }

  at(index: number): bigint {
    return this.start + BigInt(index) * this.step;
  }

  override display(): string {
    const step = this.step === 1n ? "" : `, ${this.step}`;
    return `range(${this.start}, ${this.stop}${step})`;
  }
}

/** A one-way stream, as Python's generators: consumed once, always true, without length. */
export class Stream extends PyObject {
  readonly typeName = "generator";
  readonly iterator: Iterator<Value>;

  constructor(items: Iterable<Value>) {
    super();
    this.iterator = items[Symbol.iterator]();
  }

  override display(): string {
    return "<generator object>";
  }
}

/** `namespace(...)`: the only thing whose members a template may set. */
export class Namespace extends PyObject {
  readonly typeName = "Namespace";

  constructor(readonly members: Map<string, Value>) {
    super();
  }

  override attribute(name: string): Value | undefined {
    return this.members.get(name);
  }
}

/** Something that can be called with Python's positional and keyword arguments. */
export class Callable extends PyObject {
  readonly typeName: string = "function";

  constructor(
    readonly name: string,
    readonly call: (run: Run, args: Arguments, keywords: Keywords) => Value,
  ) {
    super();
  }

  override display(): string {
    return `<function ${this.name}>`;
  }
}

/** `type(value).__name__`. */
export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  switch (typeof value) {
    case "boolean":
      return "bool";
    case "bigint":
      return "int";
    case "number":
      return "float";
    case "string":
      return "str";
    default:
      return value.typeName;
  }
}

/** `value`, or the first alternative that exists. Not `??`: Python's None is a value. */
export function firstPresent(
  value: Value | undefined,
  ...alternatives: (() => Value | undefined)[]
): Value | undefined {
  let found = value;
  for (const alternative of alternatives) {
    if (found !== undefined) break;
    found = alternative();
  }
  return found;
}

export function isText(value: Value): value is string | Markup {
  return typeof value === "string" || value instanceof Markup;
}

/** The characters of a str or Markup, undefined for anything else. */
export function textOf(value: Value): string | undefined {
  if (typeof value === "string") return value;
  return value instanceof Markup ? value.text : undefined;
}
