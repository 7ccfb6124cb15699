/**
 * JSON as the schema reader takes it: objects as maps, so that the order of keys is the source's even for keys that look
 * like array indices; numbers as numbers.
 */
import { JsonNumber } from "../json-numbers.ts";

export type Json = null | boolean | number | string | readonly Json[] | JsonObject;
export type JsonObject = ReadonlyMap<string, Json>;

/** @param value what a body's parser gave: plain objects, `Map`s, `JsonNumber`s. What is not JSON becomes null. */
export function jsonTree(value: unknown): Json {
  if (value instanceof JsonNumber) return Number(value.source);
  if (value === null || typeof value === "boolean" || typeof value === "number" || typeof value === "string")
    return value;
  if (Array.isArray(value)) return value.map(jsonTree);
  if (value instanceof Map) return new Map(Array.from(value, ([key, item]) => [String(key), jsonTree(item)] as const));
  if (typeof value === "object") {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    return new Map(entries.map(([key, item]) => [key, jsonTree(item)] as const));
  }
  return null;
}

export function isJsonObject(value: Json | undefined): value is JsonObject {
  return value instanceof Map;
}

export function isJsonArray(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

/** Compact JSON text. */
export function jsonText(value: Json): string {
  if (isJsonArray(value)) return `[${value.map(jsonText).join(",")}]`;
  if (isJsonObject(value)) {
    return `{${Array.from(value, ([key, item]) => `${JSON.stringify(key)}:${jsonText(item)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

/** Compact JSON text of what a body's parser gave. */
export function jsonTextOf(value: unknown): string {
  return jsonText(jsonTree(value));
}

/** Equal as JSON: the order of keys does not matter. */
export function sameJson(a: Json, b: Json): boolean {
  if (isJsonArray(a))
    return isJsonArray(b) && a.length === b.length && a.every((item, i) => sameJson(item, b[i] ?? null));
  if (!isJsonObject(a)) return a === b;
  if (!isJsonObject(b) || a.size !== b.size) return false;
  return Array.from(a).every(([key, item]) => {
    const other = b.get(key);
    return other !== undefined && sameJson(item, other);
  });
}

/** One step of a JSON pointer (RFC 6901). */
export function pointerTo(base: string, ...keys: readonly (string | number)[]): string {
  return keys.reduce<string>((path, key) => `${path}/${String(key).replace(/~/g, "~0").replace(/\//g, "~1")}`, base);
}
