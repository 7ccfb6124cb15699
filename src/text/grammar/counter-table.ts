/**
 * Limits that are too large for a grammar, by place, for the counts beside it (structured-output.md §4). A place may be any
 * of a node's shapes; the tightest limit of them counts, so what passes is valid whichever it was.
 */
import { reachable } from "./finite.ts";
import { COUNT_MAX, LENGTH_MAX } from "./keywords.ts";
import type { SchemaNode, Shape } from "./shapes.ts";

/** As `CounterNode` of the engine, where each field is explained. */
export interface CountedNode {
  readonly maxLength: number | null;
  readonly maxItems: number | null;
  readonly maxProperties: number | null;
  readonly properties: Readonly<Record<string, readonly number[]>>;
  readonly others: readonly number[];
  readonly prefix: readonly (readonly number[])[];
  readonly items: readonly number[];
}

export interface CountedTable {
  readonly starts: readonly { readonly after: string; readonly root: readonly number[] }[];
  readonly nodes: readonly CountedNode[];
}

/** Null: no limit is that large. @param texts each a JSON text by its schema, with what stands in front of it */
export function counterTable(
  texts: readonly { readonly after: string; readonly root: SchemaNode }[],
): CountedTable | null {
  const nodes = [...new Set(texts.flatMap(({ root }) => reachable(root)))];
  if (!nodes.some(({ shapes }) => shapes.some(isLarge))) return null;
  const numbers = new Map(nodes.map((node, index) => [node, index]));
  const of = (node: SchemaNode | null): readonly number[] => {
    const index = node === null ? undefined : numbers.get(node);
    return index === undefined ? [] : [index];
  };
  return {
    starts: texts.map(({ after, root }) => ({ after, root: of(root) })),
    nodes: nodes.map((node) => counted(allShapes(node), of)),
  };
}

/** Whether the writer leaves the shape's limit to the counts. */
function isLarge(shape: Shape): boolean {
  if (shape.kind !== "string" && shape.kind !== "array" && shape.kind !== "object") return false;
  const inGrammar =
    shape.kind === "string" ? LENGTH_MAX : Math.max(COUNT_MAX, "prefix" in shape ? shape.prefix.length : 0);
  return shape.max !== null && shape.max > inGrammar;
}

/** Through references, too. */
function allShapes(node: SchemaNode): readonly Shape[] {
  return node.shapes.flatMap((shape) => (shape.kind === "node" ? allShapes(shape.node) : [shape]));
}

function counted(shapes: readonly Shape[], of: (node: SchemaNode | null) => readonly number[]): CountedNode {
  const least = (kind: Shape["kind"]) => {
    const limits = shapes.flatMap((shape) =>
      shape.kind === kind && isLarge(shape) && "max" in shape ? [shape.max] : [],
    );
    const numbers = limits.filter((limit) => typeof limit === "number");
    return numbers.length === 0 ? null : Math.min(...numbers);
  };
  const arrays = shapes.filter((shape) => shape.kind === "array");
  const objects = shapes.filter((shape) => shape.kind === "object");
  const names = new Set(objects.flatMap(({ properties }) => properties.map(({ name }) => name)));
  const length = Math.max(0, ...arrays.map(({ prefix }) => prefix.length));
  return {
    maxLength: least("string"),
    maxItems: least("array"),
    maxProperties: least("object"),
    properties: Object.fromEntries(
      [...names].map((name) => [
        name,
        objects.flatMap(({ properties, others }) => of(properties.find((one) => one.name === name)?.node ?? others)),
      ]),
    ),
    others: objects.flatMap(({ others }) => of(others)),
    prefix: Array.from({ length }, (_, i) => arrays.flatMap(({ prefix, items }) => of(prefix[i] ?? items))),
    items: arrays.flatMap(({ items }) => of(items)),
  };
}
