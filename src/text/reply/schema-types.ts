/** Which JSON types a schema allows: read from `type`, else from the values and branches that it lists. */
import { JsonNumber } from "../json-numbers.ts";

export type JsonType = "string" | "boolean" | "integer" | "number" | "object" | "array" | "null";

const TYPES: ReadonlySet<unknown> = new Set(["string", "boolean", "integer", "number", "object", "array", "null"]);

/** References and branches beyond this are not followed: schemas may be circular. */
const DEPTH_MAX = 16;

/** The schema of one parameter of a tool. */
export function schemaOf(parameter: string, tool: object): unknown {
  const named = member(member(tool, "properties"), parameter);
  return named ?? member(tool, "additionalProperties");
}

/** The allowed types, null if the schema does not say. @param root where `$ref`s point into */
export function typesOf(schema: unknown, root: object): ReadonlySet<JsonType> | null {
  const types = collect(schema, root, 0);
  if (types === null || types.size === 0) return null;
  return member(schema, "nullable") === true ? new Set([...types, "null"]) : types;
}

function collect(schema: unknown, root: object, depth: number): ReadonlySet<JsonType> | null {
  if (depth > DEPTH_MAX || typeof schema !== "object" || schema === null) return null;
  const type = member(schema, "type");
  if (type !== undefined) return new Set((Array.isArray(type) ? type : [type]).filter(isType));
  const reference = member(schema, "$ref");
  if (typeof reference === "string") return collect(resolve(reference, root), root, depth + 1);
  const values = member(schema, "enum");
  if (Array.isArray(values)) return new Set(values.map(typeOfValue));
  const constant = member(schema, "const");
  if (constant !== undefined) return new Set([typeOfValue(constant)]);
  return branches(schema, root, depth);
}

/** Of alternatives all types are allowed; a branch that says nothing allows anything. */
function branches(schema: object, root: object, depth: number): ReadonlySet<JsonType> | null {
  for (const keyword of ["anyOf", "oneOf"]) {
    const list = member(schema, keyword);
    if (!Array.isArray(list)) continue;
    const all = new Set<JsonType>();
    for (const branch of list) {
      const types = collect(branch, root, depth + 1);
      if (types === null) return null;
      for (const type of types) all.add(type);
    }
    return all;
  }
  const parts = member(schema, "allOf");
  const known = Array.isArray(parts) ? parts.map((part) => collect(part, root, depth + 1)) : [];
  return known.find((types) => types !== null) ?? null;
}

function isType(value: unknown): value is JsonType {
  return TYPES.has(value);
}

function typeOfValue(value: unknown): JsonType {
  if (value === null) return "null";
  if (value instanceof JsonNumber) return value.isInteger ? "integer" : "number";
  if (Array.isArray(value)) return "array";
  switch (typeof value) {
    case "string":
      return "string";
    case "boolean":
      return "boolean";
    case "number":
      return Number.isInteger(value) ? "integer" : "number";
    default:
      return "object";
  }
}

/** What `#/a/b` points to; undefined for what is not there or elsewhere. */
function resolve(reference: string, root: object): unknown {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return undefined;
  let place: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    place = member(place, part.replaceAll("~1", "/").replaceAll("~0", "~"));
  }
  return place;
}

/** A member of a plain object or of a `Map`, as schemas are read. */
function member(value: unknown, key: string): unknown {
  if (value instanceof Map) return value.get(key);
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
  return Reflect.get(value, key);
}
