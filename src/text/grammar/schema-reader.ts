/**
 * JSON Schema → shapes: references followed, combinators multiplied out into alternatives, conjunctions merged
 * (structured-output.md §4). What cannot be enforced is refused with its pointer, or, if the schema is not strict, noted.
 * Invariant: an instance of the shapes is an instance of the schema, but for what `relaxed` lists.
 */
import { type Automaton, AutomatonTooLarge, both } from "./automaton.ts";
import { conforms } from "./conforms.ts";
import { GrammarError } from "./errors.ts";
import { checkFinite } from "./finite.ts";
import { type Conjunction, emptyFlat, type FlatSchema, mergeFlat, type Place, type TypeName } from "./flat-schema.ts";
import { isJsonArray, isJsonObject, type Json, type JsonObject, pointerTo } from "./json-tree.ts";
import { readKeywords } from "./keywords.ts";
import { DEPTH_MAX } from "./schema-limits.ts";
import type { ObjectShape, SchemaNode, Shape, StringShape } from "./shapes.ts";

export interface ReadSchema {
  readonly root: SchemaNode;
  /** JSON pointers of what is not enforced. */
  readonly relaxed: readonly string[];
}

/** Alternatives of one place, and places in all: what a schema may multiply out to. */
const ALTERNATIVES_MAX = 500;
const NODES_MAX = 20_000;

const COMBINATORS: ReadonlySet<string> = new Set(["$ref", "allOf", "anyOf", "oneOf"]);
/** Of no consequence beside a reference. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  ...["title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"],
  ...["$comment", "$id", "id", "$schema", "$defs", "definitions", "$anchor"],
]);

/** @throws GrammarError with the pointer of what is wrong or, in a strict schema, not supported */
export function readSchema(schema: Json, strict: boolean): ReadSchema {
  const reader = new SchemaReader(schema, strict);
  const root = reader.node([{ schema, pointer: "" }], 0);
  checkFinite(root);
  return { root, relaxed: [...reader.relaxed] };
}

/** Where a schema stands among others: for the depth, and the references that led to it without a value in between. */
interface Context {
  readonly depth: number;
  readonly through: readonly string[];
}

type Expanded = FlatSchema | { readonly reference: Place };

class SchemaReader {
  readonly relaxed = new Set<string>();
  private readonly nodes = new Map<string, SchemaNode>();

  constructor(
    private readonly root: Json,
    private readonly strict: boolean,
  ) {}

  /** The node of values that all `places` allow. */
  node(places: Conjunction, depth: number): SchemaNode {
    const pointer = places[0]?.pointer ?? "";
    const key = places.map((place) => place.pointer).join("&");
    const known = this.nodes.get(key);
    if (known !== undefined) return known;
    if (depth > DEPTH_MAX) throw new GrammarError(pointer, `nested deeper than ${DEPTH_MAX} levels`);
    if (this.nodes.size >= NODES_MAX) throw new GrammarError(pointer, "the schema multiplies out to too much");
    const node: SchemaNode = { pointer, shapes: [] };
    this.nodes.set(key, node);
    for (const one of this.expandAll(places, { depth, through: [] })) {
      if ("reference" in one) node.shapes.push({ kind: "node", node: this.node([one.reference], depth) });
      else node.shapes.push(...this.shapes(one, depth));
    }
    if (node.shapes.length === 0) throw new GrammarError(pointer, "no value can match");
    return node;
  }

  private readonly relax = (pointer: string, what: string): void => {
    if (this.strict && what !== "") throw new GrammarError(pointer, `${what} (in a strict schema)`);
    this.relaxed.add(pointer);
  };

  private expandAll(places: Conjunction, context: Context): readonly Expanded[] {
    const [only] = places;
    if (places.length === 1 && only !== undefined) return this.expand(only, context);
    let merged: readonly FlatSchema[] = [emptyFlat(only?.pointer ?? "")];
    for (const place of places)
      merged = this.product(merged, this.inline(this.expand(place, context), context), place.pointer);
    return merged;
  }

  /** The alternatives of one place. */
  private expand(place: Place, context: Context): readonly Expanded[] {
    const { schema, pointer } = place;
    if (schema === true) return [emptyFlat(pointer)];
    if (schema === false) return [];
    if (!isJsonObject(schema)) throw new GrammarError(pointer, "a schema must be an object or a boolean");
    if (context.depth + context.through.length > DEPTH_MAX) {
      throw new GrammarError(pointer, `nested deeper than ${DEPTH_MAX} levels`);
    }
    const reference = schema.get("$ref");
    if (reference === undefined) return this.combine(schema, pointer, context);
    const target = this.resolve(reference, pointerTo(pointer, "$ref"));
    const rest = Array.from(schema).filter(([word]) => word !== "$ref" && !ANNOTATIONS.has(word));
    if (rest.length === 0) return [{ reference: target }];
    const beside = this.combine(new Map(rest), pointer, context);
    return this.product(this.inline([{ reference: target }], context), this.inline(beside, context), pointer);
  }

  private combine(schema: JsonObject, pointer: string, context: Context): readonly Expanded[] {
    const inner: Context = { depth: context.depth + 1, through: context.through };
    const words = new Map(Array.from(schema).filter(([word]) => !COMBINATORS.has(word)));
    const lists = (["allOf", "anyOf", "oneOf"] as const).flatMap((word) => {
      const list = schema.get(word);
      return list === undefined ? [] : [{ word, branches: this.branches(list, pointerTo(pointer, word)) }];
    });
    const base = readKeywords(words, pointer, this.relax);
    const says = Array.from(words.keys()).some((word) => !ANNOTATIONS.has(word) && word !== "nullable");
    let merged: readonly Expanded[] | null = says || lists.length === 0 ? [base] : null;
    for (const { word, branches } of lists) {
      const options =
        word === "allOf" ? this.expandAll(branches, inner) : branches.flatMap((branch) => this.expand(branch, inner));
      if (word === "oneOf" && !this.disjoint(branches, inner)) this.relax(pointerTo(pointer, "oneOf"), "");
      merged =
        merged === null ? options : this.product(this.inline(merged, inner), this.inline(options, inner), pointer);
    }
    const alternatives = merged ?? [];
    const nullable = schema.get("nullable") === true && words.get("type") === undefined && lists.length > 0;
    return nullable ? [...alternatives, { ...emptyFlat(pointer), types: new Set<TypeName>(["null"]) }] : alternatives;
  }

  private branches(list: Json, pointer: string): readonly Place[] {
    if (!isJsonArray(list) || list.length === 0)
      throw new GrammarError(pointer, "must be a list of at least one schema");
    return list.map((schema, i) => {
      if (schema === false) throw new GrammarError(pointerTo(pointer, i), "no value can match false");
      return { schema, pointer: pointerTo(pointer, i) };
    });
  }

  private inline(options: readonly Expanded[], context: Context): readonly FlatSchema[] {
    return options.flatMap((option) => {
      if (!("reference" in option)) return [option];
      const { pointer } = option.reference;
      if (context.through.includes(pointer))
        throw new GrammarError(pointer, "refers to itself without a value in between");
      const inner = { depth: context.depth, through: [...context.through, pointer] };
      return this.inline(this.expand(option.reference, inner), inner);
    });
  }

  private product(a: readonly FlatSchema[], b: readonly FlatSchema[], pointer: string): readonly FlatSchema[] {
    if (a.length * b.length > ALTERNATIVES_MAX)
      throw new GrammarError(pointer, "multiplies out to too many alternatives");
    return a.flatMap((x) => b.flatMap((y) => mergeFlat(x, y) ?? []));
  }

  /** Whether no value can match two of the branches, as far as types and constants of required properties tell. */
  private disjoint(branches: readonly Place[], context: Context): boolean {
    const flats = branches.map((branch) => this.inline(this.expand(branch, context), context));
    return flats.every((own, i) =>
      flats.slice(i + 1).every((other) => own.every((a) => other.every((b) => this.apart(a, b)))),
    );
  }

  private apart(a: FlatSchema, b: FlatSchema): boolean {
    const merged = mergeFlat({ ...a, types: typesOf(a) }, { ...b, types: typesOf(b) });
    if (merged === null) return true;
    return merged.required.some((name) => {
      const values = (flat: FlatSchema) => this.constants(flat.properties.get(name) ?? []);
      const [mine, theirs] = [values(a), values(b)];
      return mine !== null && theirs !== null && !mine.some((value) => theirs.includes(value));
    });
  }

  /** The texts of the constants that a property may be; null: not only constants. */
  private constants(places: Conjunction): readonly string[] | null {
    const [place] = places;
    if (place === undefined || !isJsonObject(place.schema)) return null;
    const { values } = readKeywords(place.schema, place.pointer, this.relax);
    return values?.map((value) => JSON.stringify(value)) ?? null;
  }

  private resolve(reference: Json, pointer: string): Place {
    if (typeof reference !== "string") throw new GrammarError(pointer, "must be a string");
    if (!reference.startsWith("#"))
      throw new GrammarError(pointer, `a reference out of the schema is not supported: ${reference.slice(0, 80)}`);
    let at: Json | undefined = this.root;
    for (const step of decoded(reference).split("/").slice(1)) {
      const key = step.replace(/~1/g, "/").replace(/~0/g, "~");
      at = isJsonObject(at) ? at.get(key) : isJsonArray(at) ? at[Number(key)] : undefined;
    }
    if (at === undefined || (reference !== "#" && !reference.startsWith("#/"))) {
      throw new GrammarError(pointer, `nothing stands at ${reference.slice(0, 80)}`);
    }
    return { schema: at, pointer: decoded(reference).slice(1) };
  }

  /** The shapes of a conjunction that is read. */
  private shapes(flat: FlatSchema, depth: number): readonly Shape[] {
    const types = typesOf(flat);
    const { values } = flat;
    if (values !== null) {
      const shapes = types === null ? null : this.typed({ ...flat, values: null }, types, depth);
      const fitting = values.filter((value) => shapes === null || shapes.some((shape) => conforms(value, shape)));
      return fitting.length === 0 ? [] : [{ kind: "literal", values: fitting }];
    }
    return types === null ? [{ kind: "any" }] : this.typed(flat, types, depth);
  }

  private typed(flat: FlatSchema, types: ReadonlySet<TypeName>, depth: number): readonly Shape[] {
    return [...types].flatMap((type) => this.ofType(flat, type, depth));
  }

  private ofType(flat: FlatSchema, type: TypeName, depth: number): readonly Shape[] {
    switch (type) {
      case "null":
      case "boolean":
        return [{ kind: type }];
      case "integer":
      case "number":
        return [{ kind: "number", integer: type === "integer", min: flat.min, max: flat.max }];
      case "string":
        return this.string(flat);
      case "array":
        return this.array(flat, depth);
      case "object":
        return this.object(flat, depth);
    }
  }

  private string({ length, patterns, pointer }: FlatSchema): readonly StringShape[] {
    let pattern: Automaton | null = null;
    for (const one of patterns) {
      try {
        pattern = pattern === null ? one : both(pattern, one);
      } catch (error) {
        if (!(error instanceof AutomatonTooLarge)) throw error;
        this.relax(pointerTo(pointer, "pattern"), "several patterns together are too large");
      }
    }
    return pattern?.length === 0 ? [] : [{ kind: "string", min: length.min, max: length.max, pattern }];
  }

  private array({ prefix, items, itemCount }: FlatSchema, depth: number): readonly Shape[] {
    const open = items?.every(({ schema }) => schema !== false) ?? true;
    const possible = open ? itemCount.max : Math.min(itemCount.max ?? prefix.length, prefix.length);
    if (possible !== null && possible < itemCount.min) return [];
    const within = prefix.slice(0, possible ?? prefix.length);
    return [
      {
        kind: "array",
        prefix: within.map((places) => this.node(places, depth + 1)),
        items: open && (possible === null || possible > prefix.length) ? this.node(items ?? ANY, depth + 1) : null,
        min: itemCount.min,
        max: possible,
      },
    ];
  }

  private object(flat: FlatSchema, depth: number): readonly Shape[] {
    const { properties, required, others, memberCount } = flat;
    const isNever = (places: Conjunction) => places.some(({ schema }) => schema === false);
    const open = others === null ? properties.size === 0 : !isNever(others);
    const all = new Map(properties);
    // A required name without a schema may be anything that others may be.
    for (const name of required) if (!all.has(name)) all.set(name, others ?? ANY);
    if (required.some((name) => isNever(all.get(name) ?? []))) return [];
    const possible = Array.from(all).filter(([, places]) => !isNever(places));
    const shape: ObjectShape = {
      kind: "object",
      properties: possible.map(([name, places]) => ({
        name,
        node: this.node(places.length === 0 ? ANY : places, depth + 1),
        required: required.includes(name),
      })),
      others: open ? this.node(others === null || others.length === 0 ? ANY : others, depth + 1) : null,
      names: open ? this.names(flat, depth) : null,
      min: memberCount.min,
      max: memberCount.max,
    };
    const most = open ? memberCount.max : Math.min(memberCount.max ?? possible.length, possible.length);
    const least = Math.max(memberCount.min, required.length);
    return most !== null && most < least ? [] : [shape];
  }

  /** What `propertyNames` says of names that no property has; it must be about strings. */
  private names({ names }: FlatSchema, depth: number): StringShape | null {
    if (names.length === 0) return null;
    const [shape, more] = this.node(names, depth + 1).shapes;
    if (shape?.kind === "any") return null;
    if (shape?.kind === "string" && more === undefined) return shape;
    this.relax(names[0]?.pointer ?? "", "'propertyNames' is supported for pattern and length only");
    return null;
  }
}

const ANY: Conjunction = [{ schema: true, pointer: "*" }];

/** The types that the schema allows; without `type`, those that its other words are about. */
function typesOf({
  types,
  properties,
  required,
  others,
  names,
  prefix,
  items,
  ...flat
}: FlatSchema): ReadonlySet<TypeName> | null {
  if (types !== null) return types;
  const inferred = new Set<TypeName>();
  const counted = ({ min, max }: { min: number; max: number | null }) => min > 0 || max !== null;
  if (properties.size > 0 || required.length > 0 || others !== null || names.length > 0 || counted(flat.memberCount)) {
    inferred.add("object");
  }
  if (prefix.length > 0 || items !== null || counted(flat.itemCount)) inferred.add("array");
  if (flat.patterns.length > 0 || counted(flat.length)) inferred.add("string");
  if (flat.min !== null || flat.max !== null) inferred.add("number");
  return inferred.size > 0 ? inferred : null;
}

function decoded(reference: string): string {
  try {
    return decodeURIComponent(reference);
  } catch (error) {
    if (error instanceof URIError) return reference;
    throw error;
  }
}
