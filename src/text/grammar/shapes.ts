/**
 * A schema as the grammar writer takes it: every place is a node, a node is one of its shapes. Recursion goes through nodes.
 * Made by `schema-reader.ts`; what stands here can be enforced.
 */
import type { Automaton } from "./automaton.ts";
import type { Json } from "./json-tree.ts";

export interface SchemaNode {
  /** Where in the schema it was read. */
  readonly pointer: string;
  /** Empty: nothing matches. Filled after the node is made, since it may hold itself. */
  readonly shapes: Shape[];
}

export type Shape =
  | { readonly kind: "any" }
  | { readonly kind: "null" }
  | { readonly kind: "boolean" }
  | { readonly kind: "literal"; readonly values: readonly Json[] }
  | NumberShape
  | StringShape
  | ArrayShape
  | ObjectShape
  | { readonly kind: "node"; readonly node: SchemaNode };

export interface NumberShape {
  readonly kind: "number";
  readonly integer: boolean;
  readonly min: Bound | null;
  readonly max: Bound | null;
}

export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

export interface StringShape {
  readonly kind: "string";
  /** Code points; `max` null: no end. */
  readonly min: number;
  readonly max: number | null;
  /** What a pattern or format allows; null: anything. */
  readonly pattern: Automaton | null;
}

export interface ArrayShape {
  readonly kind: "array";
  readonly prefix: readonly SchemaNode[];
  /** Of the elements behind the prefix; null: there are none. */
  readonly items: SchemaNode | null;
  readonly min: number;
  readonly max: number | null;
}

export interface ObjectShape {
  readonly kind: "object";
  /** In the schema's order. */
  readonly properties: readonly Property[];
  /** Of the members with other names; null: there are none. */
  readonly others: SchemaNode | null;
  /** What those names may be; null: anything. */
  readonly names: StringShape | null;
  readonly min: number;
  readonly max: number | null;
}

export interface Property {
  readonly name: string;
  readonly node: SchemaNode;
  readonly required: boolean;
}
