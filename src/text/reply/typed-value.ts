/**
 * A raw value of a call → JSON text, typed by the tool's schema (tool-calls.md §5). A value that fits no allowed type
 * stays the text that it is: the client reports the error and the model mends it.
 */
import { JsonNumber, parseJsonKeepingNumbers, stringifyJson } from "../json-numbers.ts";
import { integerText, numberText } from "./json-text.ts";
import { type JsonType, schemaOf, typesOf } from "./schema-types.ts";

/** Longer values without a schema are text. */
const GUESS_MAX = 32;

/** @param tool schema of the tool's arguments */
export function typedValue(raw: string, parameter: string, tool: object | undefined): string {
  const types = allowed(parameter, tool);
  return types === null ? guessed(raw) : withTypes(raw, types);
}

/** The same for families that write any JSON where no schema says more. */
export function typedOrJson(raw: string, parameter: string, tool: object | undefined): string {
  const types = allowed(parameter, tool);
  if (types !== null) return withTypes(raw, types);
  const value = readJson(raw);
  return value === undefined ? JSON.stringify(raw) : stringifyJson(value);
}

function allowed(parameter: string, tool: object | undefined): ReadonlySet<JsonType> | null {
  return tool === undefined ? null : typesOf(schemaOf(parameter, tool), tool);
}

function withTypes(raw: string, types: ReadonlySet<JsonType>): string {
  const text = JSON.stringify(raw);
  if (types.has("string")) return text;
  const written = raw.trim();
  const word = written.toLowerCase();
  if (types.has("boolean") && (word === "true" || word === "false")) return word;
  const number =
    (types.has("integer") ? integerText(written) : null) ?? (types.has("number") ? numberText(written) : null);
  if (number !== null) return number;
  if (types.has("object") || types.has("array")) {
    const value = readJson(written);
    if (types.has("array") && Array.isArray(value)) return stringifyJson(value);
    if (types.has("object") && isObject(value)) return stringifyJson(value);
  }
  return types.has("null") && isNull(word) ? "null" : text;
}

/** A value of a parameter that no schema knows: by its form, if it is short. */
function guessed(raw: string): string {
  const written = raw.trim();
  const word = written.toLowerCase();
  if (raw.length > GUESS_MAX || written.includes("\n")) return JSON.stringify(raw);
  if (word === "true" || word === "false") return word;
  if (isNull(word)) return "null";
  // A leading zero is a mark of codes and order numbers.
  return (/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(written) && numberText(written)) || JSON.stringify(raw);
}

function isNull(word: string): boolean {
  return word === "null" || word === "none";
}

function readJson(text: string): unknown {
  try {
    return parseJsonKeepingNumbers(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof JsonNumber);
}
