/** Hermes calls: `{"name": …, "arguments": {…}}`. Numbers keep their digits, types are the value's own. */
import { JsonNumber, type JsonValue, parseJsonKeepingNumbers, stringifyJson } from "../../json-numbers.ts";
import type { BracketGrammar } from "../bracket-scanner.ts";
import type { ParsedCall } from "../events.ts";
import { repairJson } from "../repair-json.ts";

export const HERMES: BracketGrammar = {
  closer: "</tool_call>",
  head: { partial: /^\s*$/, whole: /^\s*\{$/, depth: 1 },
  strings: [{ delimiter: '"', escapes: true }],
  read: (value) => {
    const call =
      readCall(value) ??
      repairJson(value)
        .map(readCall)
        .find((repaired) => repaired !== null);
    return call == null ? null : [call];
  },
  readComplete: () => [],
};

function readCall(text: string): ParsedCall | null {
  const value = parse(text);
  const name = get(value, "name");
  if (typeof name !== "string" || name === "") return null;
  const given = get(value, "arguments") ?? get(value, "parameters") ?? {};
  const object = typeof given === "string" ? unwrapped(given) : given;
  return isObject(object) ? { name, arguments: stringifyJson(object) } : null;
}

/** Arguments written as a JSON string, as the API has them. */
function unwrapped(text: string): JsonValue | null {
  return text.trim() === "" ? {} : parse(text);
}

function parse(text: string): JsonValue | null {
  try {
    return parseJsonKeepingNumbers(text);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

function get(value: JsonValue | null, key: string): JsonValue | undefined {
  if (value instanceof Map) return value.get(key);
  if (!isObject(value) || !Object.hasOwn(value, key)) return undefined;
  return Reflect.get(value, key);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof JsonNumber);
}
