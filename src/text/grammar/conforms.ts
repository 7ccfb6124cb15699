/** Whether a JSON value has a shape: for the values of an enum that stand beside other keywords. */
import type { Automaton } from "./automaton.ts";
import { isJsonArray, isJsonObject, type Json, sameJson } from "./json-tree.ts";
import type { ArrayShape, NumberShape, ObjectShape, SchemaNode, Shape, StringShape } from "./shapes.ts";

export function conforms(value: Json, shape: Shape): boolean {
  switch (shape.kind) {
    case "any":
      return true;
    case "null":
      return value === null;
    case "boolean":
      return typeof value === "boolean";
    case "literal":
      return shape.values.some((one) => sameJson(one, value));
    case "number":
      return typeof value === "number" && isWithin(value, shape);
    case "string":
      return typeof value === "string" && isText(value, shape);
    case "array":
      return isJsonArray(value) && isArray(value, shape);
    case "object":
      return isJsonObject(value) && isObject(value, shape);
    case "node":
      return matches(value, shape.node);
  }
}

function matches(value: Json, node: SchemaNode): boolean {
  return node.shapes.some((shape) => conforms(value, shape));
}

function isWithin(value: number, { integer, min, max }: NumberShape): boolean {
  if (integer && !Number.isInteger(value)) return false;
  if (min !== null && (min.exclusive ? value <= min.value : value < min.value)) return false;
  return max === null || !(max.exclusive ? value >= max.value : value > max.value);
}

function isText(value: string, { min, max, pattern }: StringShape): boolean {
  const characters = Array.from(value);
  if (characters.length < min || (max !== null && characters.length > max)) return false;
  return pattern === null || accepts(pattern, characters);
}

export function accepts(automaton: Automaton, characters: readonly string[]): boolean {
  let at: number | undefined = automaton.length > 0 ? 0 : undefined;
  for (const character of characters) {
    const code = character.codePointAt(0) ?? 0;
    const { transitions } = (at === undefined ? undefined : automaton[at]) ?? { transitions: [] };
    at = transitions.find(({ on }) => on.some(([from, to]) => code >= from && code <= to))?.to;
  }
  return at !== undefined && automaton[at]?.final === true;
}

function isArray(value: readonly Json[], { prefix, items, min, max }: ArrayShape): boolean {
  if (value.length < min || (max !== null && value.length > max)) return false;
  return value.every((item, i) => {
    const node = prefix[i] ?? items;
    return node !== null && matches(item, node);
  });
}

function isObject(value: ReadonlyMap<string, Json>, { properties, others, names, min, max }: ObjectShape): boolean {
  if (value.size < min || (max !== null && value.size > max)) return false;
  if (properties.some(({ name, required }) => required && !value.has(name))) return false;
  return Array.from(value).every(([key, item]) => {
    const property = properties.find(({ name }) => name === key);
    if (property !== undefined) return matches(item, property.node);
    return others !== null && (names === null || isText(key, names)) && matches(item, others);
  });
}
