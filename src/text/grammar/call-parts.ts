/** What every family's call grammar is made from: the syntax with its markers, the tools with their schemas. */
import type { Brackets, Dialect, MemberForm } from "./dialect.ts";
import { GrammarError } from "./errors.ts";
import { jsonTree } from "./json-tree.ts";
import { literal, type Rules } from "./rules.ts";
import { readSchema } from "./schema-reader.ts";
import { SchemaWriter } from "./schema-writer.ts";
import type { ObjectShape, SchemaNode } from "./shapes.ts";

export interface GrammarTool {
  readonly name: string;
  /** JSON schema of the arguments; absent: any object. */
  readonly parameters?: object;
  /** Arguments must follow the schema; else they are any object. */
  readonly strict: boolean;
}

/** A tool with its schema read. */
export interface ReadTool {
  readonly name: string;
  readonly node: SchemaNode;
  readonly strict: boolean;
}

const ANY_NODE: SchemaNode = { pointer: "", shapes: [{ kind: "any" }] };
const ANY_OBJECT: ObjectShape = { kind: "object", properties: [], others: ANY_NODE, names: null, min: 0, max: null };

/** @throws GrammarError with the tool's name in front of what is wrong with its schema */
export function readTool({ name, parameters, strict }: GrammarTool, relax: (pointer: string) => void): ReadTool {
  if (!strict || parameters === undefined) {
    return { name, strict: false, node: { pointer: "", shapes: [ANY_OBJECT] } };
  }
  try {
    const { root, relaxed } = readSchema(jsonTree(parameters), true);
    for (const pointer of relaxed) relax(`${name}${pointer}`);
    return { name, strict: true, node: root };
  } catch (error) {
    if (error instanceof GrammarError) throw new GrammarError(null, `tool ${name}: ${error.message}`);
    throw error;
  }
}

/** The object shapes of a tool's arguments. */
export function objectShapes(node: SchemaNode): readonly ObjectShape[] {
  return node.shapes.flatMap((shape) => {
    if (shape.kind === "node") return objectShapes(shape.node);
    if (shape.kind === "any") return [ANY_OBJECT];
    return shape.kind === "object" ? [shape] : [];
  });
}

/**
 * The literal parts of a family's syntax. A marker that is one token of the model is its reserved character in the grammar
 * (`ConstraintSpec.markers`); one that is not is spelled.
 */
export class CallSyntaxText {
  /**
   * Markers in the order of their characters: all that are tokens, used or not, so that all grammars of a family share one
   * vocabulary.
   */
  readonly tokens: readonly string[];
  /** The longest first. */
  private readonly known: readonly string[];

  /** @param isToken whether a text is one control token of the model */
  constructor(markers: readonly string[], isToken: (text: string) => boolean) {
    this.tokens = markers.filter(isToken);
    this.known = [...this.tokens].sort((a, b) => b.length - a.length);
  }

  /** The fragment of a text of the syntax. */
  fragment(text: string): string {
    const parts: string[] = [];
    let open = "";
    for (let at = 0; at < text.length; ) {
      const marker = this.known.find((one) => text.startsWith(one, at));
      if (marker === undefined) {
        open += text.charAt(at);
        at++;
        continue;
      }
      if (open !== "") parts.push(literal(open));
      parts.push(literal(this.character(marker)));
      open = "";
      at += marker.length;
    }
    return [...parts, ...(open === "" ? [] : [literal(open)])].join(" ");
  }

  hasToken(text: string): boolean {
    return this.known.some((marker) => text.includes(marker));
  }

  private character(marker: string): string {
    return String.fromCharCode(this.tokens.indexOf(marker) + 1);
  }
}

/** All that a family needs to write its calls. */
export interface CallContext {
  readonly rules: Rules;
  readonly syntax: CallSyntaxText;
  /** More than one call. */
  readonly parallel: boolean;
  /** The writer of a dialect's values, the same for all tools. */
  writer(dialect: Dialect): SchemaWriter;
}

export function callContext(
  rules: Rules,
  syntax: CallSyntaxText,
  parallel: boolean,
  counted: boolean,
  relax: (pointer: string) => void,
): CallContext {
  const writers = new Map<string, SchemaWriter>();
  return {
    rules,
    syntax,
    parallel,
    writer: (dialect) => {
      const known = writers.get(dialect.name);
      if (known !== undefined) return known;
      const made = new SchemaWriter(rules, dialect, { counted, strict: true, relax });
      writers.set(dialect.name, made);
      return made;
    },
  };
}

/** Members of a call that stands for an object: no brackets of its own but `close`. */
export function bracketsOf(open: string, close: string): Brackets {
  return { open, close, empty: [open, close].filter((part) => part !== "").join(" ") };
}

/** The rule of a tool's arguments in a family's own form of members. */
export function argumentRule(
  { rules }: CallContext,
  writer: SchemaWriter,
  { node, name }: ReadTool,
  form: MemberForm,
  valueRule: (node: SchemaNode) => string,
): string {
  const shapes = objectShapes(node);
  if (shapes.length === 0) throw new GrammarError(null, `tool ${name}: the arguments must be an object`);
  const alternatives = shapes.map((shape) => writer.object(shape, node.pointer, form, valueRule));
  const [only] = alternatives;
  return alternatives.length === 1 && only !== undefined ? only : rules.define(rules.name("arguments"), alternatives);
}
