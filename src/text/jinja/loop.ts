/** The `loop` object of a `for`: looks one item ahead, and asks for the length only when a template does. */
import { Bound } from "./bind.ts";
import { equals } from "./compare.ts";
import { TemplateError } from "./errors.ts";
import type { Run } from "./run.ts";
import { type Arguments, Callable, type Keywords, Undefined, type Value } from "./values.ts";

/** Renders the loop's body over another iterable, one level deeper. */
export type Recurse = (iterable: Value, depth: number) => Value;

export class Loop extends Callable {
  override readonly typeName = "LoopContext";
  private ahead: Value[] = [];
  private index0 = -1;
  private previous: Value | undefined;
  private current: Value | undefined;
  private lastChanged: Arguments | undefined;

  constructor(
    private readonly items: Iterator<Value>,
    private readonly depth0: number,
    recurse: Recurse | null,
  ) {
    super("loop", (_run, args, keywords) => {
      if (recurse === null)
        throw new TemplateError("the loop must have the 'recursive' marker to be called recursively");
      return recurse(new Bound("loop", ["iterable"], args, keywords).value("iterable"), depth0 + 1);
    });
  }

  /** Moves on; undefined at the end. */
  advance(): Value | undefined {
    this.previous = this.current;
    this.current = this.fill(1) ? this.ahead.shift() : undefined;
    this.index0 += 1;
    return this.current;
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case "index":
        return BigInt(this.index0 + 1);
      case "index0":
        return BigInt(this.index0);
      case "revindex":
        return BigInt(this.length() - this.index0);
      case "revindex0":
        return BigInt(this.length() - this.index0 - 1);
      case "first":
        return this.index0 === 0;
      case "last":
        return !this.fill(1);
      case "length":
        return BigInt(this.length());
      case "depth":
        return BigInt(this.depth0 + 1);
      case "depth0":
        return BigInt(this.depth0);
      case "previtem":
        return this.previous === undefined ? new Undefined("there is no previous item") : this.previous;
      case "nextitem":
        return this.next();
      case "cycle":
        return new Callable(name, (_run, args) => this.cycle(args));
      case "changed":
        return new Callable(name, (run, args, keywords) => this.changed(run, args, keywords));
      default:
        return undefined;
    }
  }

  override display(): string {
    return `<LoopContext ${this.index0 + 1}/${this.length()}>`;
  }

  /** Reads ahead until `count` items are waiting; false if there are fewer. */
  private fill(count: number): boolean {
    while (this.ahead.length < count) {
      const next = this.items.next();
      if (next.done === true) return false;
      this.ahead.push(next.value);
    }
    return true;
  }

  private length(): number {
    this.fill(Number.POSITIVE_INFINITY);
    return this.index0 + 1 + this.ahead.length;
  }

  private next(): Value {
    const next = this.fill(1) ? this.ahead[0] : undefined;
    return next === undefined ? new Undefined("there is no next item") : next;
  }

  private cycle(args: Arguments): Value {
    const value = args[this.index0 % Math.max(args.length, 1)];
    if (value === undefined) throw new TemplateError("no items for cycling given");
    return value;
  }

  private changed(_run: Run, args: Arguments, _keywords: Keywords): boolean {
    const before = this.lastChanged;
    this.lastChanged = args;
    return (
      before === undefined ||
      before.length !== args.length ||
      !args.every((value, index) => equals(value, before[index] ?? null))
    );
  }
}
