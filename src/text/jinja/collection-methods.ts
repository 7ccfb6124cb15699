/** Methods of list, tuple, dict and range: those that only read. */
import { Bound } from "./bind.ts";
import { equals, iterate, lengthOf } from "./compare.ts";
import { Dict, DictView } from "./dict.ts";
import { repr } from "./display.ts";
import { TemplateError } from "./errors.ts";
import type { Run } from "./run.ts";
import { Callable, List, type Range, type Tuple, type Value } from "./values.ts";

/** The method bound to `owner`, undefined if its type has none of that name. */
export function collectionMethod(owner: List | Tuple | Dict | Range, name: string): Callable | undefined {
  if (owner instanceof Dict) return dictMethod(owner, name);
  return sequenceMethod(owner, name);
}

function sequenceMethod(owner: List | Tuple | Range, name: string): Callable | undefined {
  const items = () => Array.from(iterate(owner));
  switch (name) {
    case "count":
      return new Callable(name, (run, args, keywords) => {
        run.charge(lengthOf(owner));
        const value = new Bound(name, ["value"], args, keywords).value("value");
        return BigInt(items().filter((item) => equals(item, value)).length);
      });
    case "index":
      return new Callable(name, (run, args, keywords) => {
        const bound = new Bound(name, ["value", "start?", "stop?"], args, keywords);
        return indexOf(run, items(), bound);
      });
    case "copy":
      return owner instanceof List ? new Callable(name, () => owner) : undefined;
    default:
      return undefined;
  }
}

function indexOf(run: Run, items: readonly Value[], bound: Bound): bigint {
  run.charge(items.length);
  const value = bound.value("value");
  const clip = (index: number) => Math.max(index < 0 ? index + items.length : index, 0);
  const stop = clip(bound.integer("stop", items.length));
  for (let index = clip(bound.integer("start", 0)); index < Math.min(stop, items.length); index += 1) {
    if (equals(items[index] ?? null, value)) return BigInt(index);
  }
  throw new TemplateError(`${repr(value)} is not in list`);
}

function dictMethod(owner: Dict, name: string): Callable | undefined {
  switch (name) {
    case "get":
      return new Callable(name, (_run, args, keywords) => {
        const bound = new Bound(name, ["key", "default?"], args, keywords);
        const found = owner.get(bound.value("key"));
        return found === undefined ? bound.value("default") : found;
      });
    case "keys":
    case "values":
    case "items":
      return new Callable(name, (_run, args, keywords) => {
        new Bound(name, [], args, keywords);
        return new DictView(owner, name);
      });
    case "copy":
      return new Callable(name, () => owner);
    default:
      return undefined;
  }
}
