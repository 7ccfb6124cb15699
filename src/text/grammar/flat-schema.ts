/**
 * One schema without references and combinators: the conjunction of what several places say. Merging is exact where JSON
 * Schema is; the one rule of ours is `closed`: without `additionalProperties`, an object with `properties` has no others.
 */
import type { Automaton } from "./automaton.ts";
import { type Json, sameJson } from "./json-tree.ts";
import type { Bound } from "./shapes.ts";

export type TypeName = "null" | "boolean" | "integer" | "number" | "string" | "array" | "object";

/** A schema where it stands. */
export interface Place {
  readonly schema: Json;
  readonly pointer: string;
}

/** All of the places hold. */
export type Conjunction = readonly Place[];

export interface FlatSchema {
  readonly pointer: string;
  /** null: any. */
  readonly types: ReadonlySet<TypeName> | null;
  /** Of enum and const; null: any. */
  readonly values: readonly Json[] | null;
  readonly properties: ReadonlyMap<string, Conjunction>;
  readonly required: readonly string[];
  /** Of members with other names; null: nothing was said. */
  readonly others: Conjunction | null;
  readonly names: Conjunction;
  readonly prefix: readonly Conjunction[];
  /** Of the elements behind the prefix; null: nothing was said. */
  readonly items: Conjunction | null;
  readonly patterns: readonly Automaton[];
  readonly length: Span;
  readonly itemCount: Span;
  readonly memberCount: Span;
  readonly min: Bound | null;
  readonly max: Bound | null;
}

/** `max` null: no end. */
export interface Span {
  readonly min: number;
  readonly max: number | null;
}

export const ANY_SPAN: Span = { min: 0, max: null };

export function emptyFlat(pointer: string): FlatSchema {
  return {
    pointer,
    types: null,
    values: null,
    properties: new Map(),
    required: [],
    others: null,
    names: [],
    prefix: [],
    items: null,
    patterns: [],
    length: ANY_SPAN,
    itemCount: ANY_SPAN,
    memberCount: ANY_SPAN,
    min: null,
    max: null,
  };
}

/** What both say; null: no value can match. */
export function mergeFlat(a: FlatSchema, b: FlatSchema): FlatSchema | null {
  const types = mergeTypes(a.types, b.types);
  const values = mergeValues(a.values, b.values);
  const spans = [
    mergeSpan(a.length, b.length),
    mergeSpan(a.itemCount, b.itemCount),
    mergeSpan(a.memberCount, b.memberCount),
  ];
  const [length, itemCount, memberCount] = spans;
  if (types?.size === 0 || values?.length === 0 || !length || !itemCount || !memberCount) return null;
  return {
    pointer: a.pointer,
    types,
    values,
    properties: mergeProperties(a, b),
    required: [...new Set([...a.required, ...b.required])],
    others: given(a.others, b.others),
    names: [...a.names, ...b.names],
    prefix: Array.from({ length: Math.max(a.prefix.length, b.prefix.length) }, (_, i) => [
      ...(a.prefix[i] ?? a.items ?? []),
      ...(b.prefix[i] ?? b.items ?? []),
    ]),
    items: given(a.items, b.items),
    patterns: [...a.patterns, ...b.patterns],
    length,
    itemCount,
    memberCount,
    min: tighter(a.min, b.min, 1),
    max: tighter(a.max, b.max, -1),
  };
}

function given(a: Conjunction | null, b: Conjunction | null): Conjunction | null {
  return a === null || b === null ? (a ?? b) : [...a, ...b];
}

/** A name that only one of them knows is one of the other's `others`. */
function mergeProperties(a: FlatSchema, b: FlatSchema): ReadonlyMap<string, Conjunction> {
  const merged = new Map<string, Conjunction>();
  for (const name of [...a.properties.keys(), ...b.properties.keys()]) {
    merged.set(name, [...(a.properties.get(name) ?? a.others ?? []), ...(b.properties.get(name) ?? b.others ?? [])]);
  }
  return merged;
}

function mergeTypes(a: ReadonlySet<TypeName> | null, b: ReadonlySet<TypeName> | null): ReadonlySet<TypeName> | null {
  if (a === null || b === null) return a ?? b;
  const has = (set: ReadonlySet<TypeName>, type: TypeName) =>
    set.has(type) || (type === "integer" && set.has("number"));
  return new Set([...[...a].filter((type) => has(b, type)), ...[...b].filter((type) => has(a, type))]);
}

function mergeValues(a: readonly Json[] | null, b: readonly Json[] | null): readonly Json[] | null {
  if (a === null || b === null) return a ?? b;
  return a.filter((value) => b.some((other) => sameJson(value, other)));
}

function mergeSpan(a: Span, b: Span): Span | null {
  const min = Math.max(a.min, b.min);
  const max = a.max === null || b.max === null ? (a.max ?? b.max) : Math.min(a.max, b.max);
  return max !== null && min > max ? null : { min, max };
}

/** @param sign 1: the larger bound is the tighter one */
function tighter(a: Bound | null, b: Bound | null, sign: 1 | -1): Bound | null {
  if (a === null || b === null) return a ?? b;
  if (a.value === b.value) return a.exclusive ? a : b;
  return (a.value - b.value) * sign > 0 ? a : b;
}
