/** How large a schema may be (structured-output.md §1), counted before anything else looks at it. */
import { GrammarError, SchemaTooLarge } from "./errors.ts";
import { isJsonArray, isJsonObject, type Json, jsonText, pointerTo } from "./json-tree.ts";

const BYTES_MAX = 256 * 1024;
const ENUM_VALUES_MAX = 5000;
const PROPERTIES_MAX = 2000;
export const TOOLS_MAX = 128;
/** Of schemas in schemas; deeper ones spoil the engine (§3). */
export const DEPTH_MAX = 24;
/** Of any JSON in a schema (examples, defaults): what recursion here can stand. */
const JSON_DEPTH_MAX = 200;

/** @throws SchemaTooLarge, or GrammarError with the pointer of what is nested too deeply */
export function checkSize(schemas: readonly Json[]): void {
  for (const schema of schemas) checkDepth(schema, "", 0);
  const bytes = schemas.reduce<number>((sum, schema) => sum + Buffer.byteLength(jsonText(schema)), 0);
  limit("bytes", bytes, BYTES_MAX);
  const counts = { properties: 0, values: 0 };
  for (const schema of schemas) count(schema, counts);
  limit("properties", counts.properties, PROPERTIES_MAX);
  limit("enum values", counts.values, ENUM_VALUES_MAX);
}

function limit(what: string, value: number, max: number): void {
  if (value > max) throw new SchemaTooLarge(what, value, max);
}

function checkDepth(value: Json, pointer: string, depth: number): void {
  if (depth > JSON_DEPTH_MAX) throw new GrammarError(pointer, `nested deeper than ${JSON_DEPTH_MAX} levels`);
  if (isJsonArray(value)) for (const [i, item] of value.entries()) checkDepth(item, pointerTo(pointer, i), depth + 1);
  else if (isJsonObject(value)) for (const [key, item] of value) checkDepth(item, pointerTo(pointer, key), depth + 1);
}

function count(value: Json, counts: { properties: number; values: number }): void {
  if (isJsonArray(value)) for (const item of value) count(item, counts);
  else if (isJsonObject(value)) {
    for (const [key, item] of value) {
      if (key === "properties" && isJsonObject(item)) counts.properties += item.size;
      if (key === "enum" && isJsonArray(item)) counts.values += item.length;
      count(item, counts);
    }
  }
}
