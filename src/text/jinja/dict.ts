/**
 * Python's dict: insertion order, keys equal across int, float and bool, unhashable keys refused.
 * Immutable once it is in a template's hands.
 */
import { TemplateError } from "./errors.ts";
import { List, Markup, Namespace, PyObject, Tuple, typeName, type Value } from "./values.ts";

/** A JavaScript value that is identical exactly for keys equal in Python. */
type HashKey = string | bigint | number | null | PyObject;

export class Dict extends PyObject {
  readonly typeName = "dict";
  private readonly entries_ = new Map<HashKey, readonly [Value, Value]>();

  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    super();
    for (const [key, value] of entries) {
      const hash = hashKey(key);
      // As in Python, a repeated key keeps its first spelling and its place.
      this.entries_.set(hash, [this.entries_.get(hash)?.[0] ?? key, value]);
    }
  }

  get size(): number {
    return this.entries_.size;
  }

  get(key: Value): Value | undefined {
    return this.entries_.get(hashKey(key))?.[1];
  }

  has(key: Value): boolean {
    return this.entries_.has(hashKey(key));
  }

  entries(): Iterable<readonly [Value, Value]> {
    return this.entries_.values();
  }

  *keys(): Iterable<Value> {
    for (const [key] of this.entries_.values()) yield key;
  }

  *values(): Iterable<Value> {
    for (const [, value] of this.entries_.values()) yield value;
  }
}

/** What `keys()`, `values()` and `items()` return: iterable, sized, not indexable. */
export class DictView extends PyObject {
  readonly typeName: string;

  constructor(
    readonly dict: Dict,
    readonly kind: "keys" | "values" | "items",
  ) {
    super();
    this.typeName = `dict_${kind}`;
  }

  *items(): Iterable<Value> {
    for (const [key, value] of this.dict.entries()) {
      yield this.kind === "keys" ? key : this.kind === "values" ? value : new Tuple([key, value]);
    }
  }
}

function hashKey(key: Value): HashKey {
  if (typeof key === "string") return key.startsWith("\0") ? `\0s${key}` : key;
  if (typeof key === "bigint" || key === null) return key;
  if (typeof key === "boolean") return key ? 1n : 0n;
  if (typeof key === "number") return Number.isInteger(key) ? BigInt(key) : key;
  if (key instanceof Markup) return hashKey(key.text);
  if (key instanceof Tuple) return `\0t${key.items.map(tupleMember).join("")}`;
  if (key instanceof List || key instanceof Dict || key instanceof Namespace) {
    throw new TemplateError(`unhashable type: '${typeName(key)}'`);
  }
  return key;
}

const identities = new WeakMap<PyObject, number>();
let identityCount = 0;

function tupleMember(item: Value): string {
  const hash = hashKey(item);
  if (typeof hash === "string") return `s${hash.length}:${hash}`;
  if (hash instanceof PyObject) {
    const identity = identities.get(hash) ?? ++identityCount;
    identities.set(hash, identity);
    return `o${identity};`;
  }
  return `${typeof hash}${hash};`;
}
