/**
 * A schema that refers to itself must come to an end: some finite value must match, and a reference must lead to a value
 * (a rule that only names itself would never end in the engine).
 */
import { GrammarError } from "./errors.ts";
import type { SchemaNode, Shape } from "./shapes.ts";

/** @throws GrammarError with the pointer of what never ends */
export function checkFinite(root: SchemaNode): void {
  const nodes = reachable(root);
  for (const node of nodes) refuseLoop(node, node, new Set());
  const finite = new Set<SchemaNode>();
  for (let before = -1; before !== finite.size; ) {
    before = finite.size;
    for (const node of nodes) if (node.shapes.some((shape) => ends(shape, finite))) finite.add(node);
  }
  for (const node of nodes) if (!finite.has(node)) throw new GrammarError(node.pointer, "no finite value can match");
}

function refuseLoop(start: SchemaNode, node: SchemaNode, seen: Set<SchemaNode>): void {
  for (const shape of node.shapes) {
    if (shape.kind !== "node") continue;
    if (shape.node === start) throw new GrammarError(start.pointer, "refers to itself without a value in between");
    if (seen.has(shape.node)) continue;
    seen.add(shape.node);
    refuseLoop(start, shape.node, seen);
  }
}

function ends(shape: Shape, finite: ReadonlySet<SchemaNode>): boolean {
  switch (shape.kind) {
    case "node":
      return finite.has(shape.node);
    case "array": {
      const { prefix, items, min } = shape;
      const needed = [...prefix.slice(0, min), ...(min > prefix.length && items !== null ? [items] : [])];
      return needed.every((node) => finite.has(node));
    }
    case "object": {
      const required = shape.properties.filter((property) => property.required);
      const optional = shape.properties.filter((property) => !property.required && finite.has(property.node));
      const others = shape.others !== null && finite.has(shape.others) ? Number.POSITIVE_INFINITY : 0;
      const enough = required.length + optional.length + others >= shape.min;
      return enough && required.every(({ node }) => finite.has(node));
    }
    default:
      return true;
  }
}

/** All nodes of a schema, the root first. */
export function reachable(root: SchemaNode): readonly SchemaNode[] {
  const seen = new Set([root]);
  for (const node of seen) {
    for (const shape of node.shapes) {
      if (shape.kind === "node") seen.add(shape.node);
      else if (shape.kind === "array")
        for (const one of [...shape.prefix, ...(shape.items ? [shape.items] : [])]) seen.add(one);
      else if (shape.kind === "object") {
        for (const { node: one } of shape.properties) seen.add(one);
        if (shape.others !== null) seen.add(shape.others);
      }
    }
  }
  return [...seen];
}
