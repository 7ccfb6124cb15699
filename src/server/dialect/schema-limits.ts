/**
 * Bounds on a JSON schema that is to constrain an answer (structured-output.md §1), checked before anything walks it:
 * what is counted is what makes a grammar large. Every walk here is bounded itself, whatever a body holds.
 */
import { isJsonArray, isJsonObject, type Json, jsonTree } from "../../text/grammar/json-tree.ts";
import { stringifyJson } from "../../text/json-numbers.ts";
import { invalidRequest } from "../errors.ts";
import { deeperThan } from "./depth.ts";

/** Limits of structured-output.md §1. */
export const SCHEMA_LIMITS = { bytes: 256 * 1024, nesting: 24, enumValues: 5000, properties: 2000, tools: 128 };

/** Levels of JSON that one level of schema may take: `{"anyOf": [{` and `{"properties": {"a": {`. */
const LEVELS_PER_SCHEMA = 3;

const MAPS_OF_SCHEMAS = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
const SCHEMAS = [
  ...["items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "anyOf", "oneOf", "allOf", "not"],
  ...["if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames"],
];

/** Throws 400 `schema too large: <what> N > M` naming `param`. */
export function checkSchemaLimits(schema: unknown, param: string): void {
  if (deeperThan(schema, SCHEMA_LIMITS.nesting * LEVELS_PER_SCHEMA)) {
    throw tooLarge("nesting", SCHEMA_LIMITS.nesting + 1, SCHEMA_LIMITS.nesting, param);
  }
  limit("bytes", Buffer.byteLength(stringifyJson(schema)), SCHEMA_LIMITS.bytes, param);
  const counts = { depth: 0, enumValues: 0, properties: 0 };
  count(jsonTree(schema), 1, counts);
  limit("nesting", counts.depth, SCHEMA_LIMITS.nesting, param);
  limit("enum values", counts.enumValues, SCHEMA_LIMITS.enumValues, param);
  limit("properties", counts.properties, SCHEMA_LIMITS.properties, param);
}

/** Throws 400 `schema too large: <what> N > M` when `value` is above `most`. */
export function limit(what: string, value: number, most: number, param: string): void {
  if (value > most) throw tooLarge(what, value, most, param);
}

function tooLarge(what: string, value: number, most: number, param: string): Error {
  return invalidRequest(param, `schema too large: ${what} ${value} > ${most}`);
}

interface Counts {
  depth: number;
  enumValues: number;
  properties: number;
}

function count(schema: Json | undefined, depth: number, counts: Counts): void {
  if (!isJsonObject(schema)) return;
  counts.depth = Math.max(counts.depth, depth);
  const [values, properties] = [schema.get("enum"), schema.get("properties")];
  if (isJsonArray(values)) counts.enumValues += values.length;
  if (isJsonObject(properties)) counts.properties += properties.size;
  for (const key of MAPS_OF_SCHEMAS) {
    const map = schema.get(key);
    if (isJsonObject(map)) for (const inner of map.values()) count(inner, depth + 1, counts);
  }
  for (const key of SCHEMAS) {
    const inner = schema.get(key);
    if (isJsonArray(inner)) for (const item of inner) count(item, depth + 1, counts);
    else count(inner, depth + 1, counts);
  }
}
