/** Names that every template can use without their being passed: Jinja2's own and those transformers adds. */
import { Bound } from "./bind.ts";
import { iterate } from "./compare.ts";
import { Dict } from "./dict.ts";
import { toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { ITEMS_MAX } from "./limits.ts";
import type { Run } from "./run.ts";
import { formatTime } from "./strftime.ts";
import {
  type Arguments,
  Callable,
  type Keywords,
  Namespace,
  PyObject,
  Range,
  Undefined,
  type Value,
} from "./values.ts";

function range(_run: Run, args: Arguments, keywords: Keywords): Value {
  const parameters = args.length < 2 ? ["stop"] : ["start", "stop", "step?"];
  const bound = new Bound("range", parameters, args, keywords);
  const step = bound.integer("step", 1);
  if (step === 0) throw new TemplateError("range() arg 3 must not be zero");
  const made = new Range(BigInt(bound.integer("start", 0)), BigInt(bound.integer("stop")), BigInt(step));
  if (made.length > ITEMS_MAX) throw new TemplateError(`range too big: a template may count to ${ITEMS_MAX} at most`);
  return made;
}

/** Python's `dict(pairs, **members)`. */
function dictEntries(args: Arguments, keywords: Keywords): [Value, Value][] {
  const [source, ...more] = args;
  if (more.length > 0) throw new TemplateError(`dict expected at most 1 argument, got ${args.length}`);
  const entries: [Value, Value][] = [];
  if (source instanceof Undefined) source.fail();
  if (source instanceof Dict) for (const [key, value] of source.entries()) entries.push([key, value]);
  else if (source !== undefined) {
    for (const pair of iterate(source)) {
      const [key, value, ...rest] = Array.from(iterate(pair));
      if (key === undefined || value === undefined || rest.length > 0) {
        throw new TemplateError("dict needs pairs of key and value");
      }
      entries.push([key, value]);
    }
  }
  for (const [name, value] of keywords) entries.push([name, value]);
  return entries;
}

function namespace(_run: Run, args: Arguments, keywords: Keywords): Value {
  const members = new Dict(dictEntries(args, keywords)).entries();
  return new Namespace(new Map(Array.from(members, ([key, value]) => [toText(key), value])));
}

/** `cycler(a, b)`: `next()` gives the values in turn. */
class Cycler extends PyObject {
  readonly typeName = "Cycler";
  private at = 0;

  constructor(private readonly items: Arguments) {
    super();
  }

  override attribute(name: string): Value | undefined {
    const current = this.items[this.at] ?? null;
    switch (name) {
      case "current":
        return current;
      case "next":
        return new Callable(name, () => {
          const value = this.items[this.at] ?? null;
          this.at = (this.at + 1) % this.items.length;
          return value;
        });
      case "reset":
        return new Callable(name, () => {
          this.at = 0;
          return null;
        });
      default:
        return undefined;
    }
  }
}

function cycler(_run: Run, args: Arguments): Value {
  if (args.length === 0) throw new TemplateError("cycler: at least one item has to be provided");
  return new Cycler(args);
}

/** `joiner(sep)`: "" when called first, then the separator. */
function joiner(_run: Run, args: Arguments, keywords: Keywords): Value {
  const separator = new Bound("joiner", ["sep?"], args, keywords).value("sep", ", ");
  let used = false;
  return new Callable("joiner", () => {
    const value = used ? separator : "";
    used = true;
    return value;
  });
}

function raiseException(_run: Run, args: Arguments, keywords: Keywords): never {
  const message = new Bound("raise_exception", ["message"], args, keywords).value("message");
  if (message instanceof Undefined) message.fail();
  throw new TemplateError(toText(message), null, true);
}

function strftimeNow(run: Run, args: Arguments, keywords: Keywords): Value {
  return formatTime(run.now(), new Bound("strftime_now", ["format"], args, keywords).text("format"));
}

const FUNCTIONS: Readonly<Record<string, (run: Run, args: Arguments, keywords: Keywords) => Value>> = {
  range,
  dict: (_run, args, keywords) => new Dict(dictEntries(args, keywords)),
  namespace,
  cycler,
  joiner,
  raise_exception: raiseException,
  strftime_now: strftimeNow,
};

export const GLOBALS: ReadonlyMap<string, Value> = new Map(
  Object.entries(FUNCTIONS).map(([name, call]) => [name, new Callable(name, call)]),
);
