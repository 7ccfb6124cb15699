/**
 * Values as markup families write them: text as it is where a string is allowed, since the reader takes any value of such
 * a parameter for text (tool-calls.md §5), else JSON. The rule holds the closing tag.
 */
import { until } from "./automaton.ts";
import type { CallContext } from "./call-parts.ts";
import { type CharSet, charsOf, union } from "./charset.ts";
import { bareText, markupJsonDialect } from "./dialect.ts";
import { GrammarError } from "./errors.ts";
import { COUNT_MAX } from "./keywords.ts";
import { literal } from "./rules.ts";
import type { SchemaNode, Shape, StringShape } from "./shapes.ts";
import { literalText, type TextForm, writeText } from "./text-form.ts";

export interface RawForm {
  /** The closing tag as text, and as its fragment behind a value that is constrained. */
  readonly tag: string;
  readonly close: string;
  /** Characters of a text. */
  readonly alphabet: CharSet;
  /** Further ways to write a free text, closing tag included. */
  readonly otherTexts: (context: CallContext) => readonly string[];
}

export class RawValues {
  private readonly values = new Map<SchemaNode, string>();
  private readonly form: TextForm;

  constructor(
    private readonly context: CallContext,
    private readonly raw: RawForm,
  ) {
    this.form = { ...bareText("", raw.alphabet), close: raw.close, forbidden: raw.tag };
  }

  /** The rule of a node's value with its closing tag. */
  value(node: SchemaNode): string {
    const known = this.values.get(node);
    if (known !== undefined) return known;
    const shapes = flat(node);
    if (shapes.some(({ kind }) => kind === "any")) return this.free();
    const { rules } = this.context;
    const name = rules.name("raw");
    this.values.set(node, name);
    const texts = shapes.flatMap((shape) => this.texts(shape, node.pointer));
    const hasText = shapes.some(isText);
    const alternatives = hasText ? texts : this.typed(shapes, node.pointer);
    if (alternatives.length === 0)
      throw new GrammarError(node.pointer, "no value can be written in this model's calls");
    rules.define(name, alternatives);
    return name;
  }

  /** Any text up to the closing tag. */
  private free(): string {
    const { rules } = this.context;
    return rules.once("raw_any", (name) => {
      const { tag, alphabet, otherTexts } = this.raw;
      const form = bareText("", union(alphabet, charsOf(tag)));
      const rule = writeText(rules, "raw_text", until(tag, alphabet), form) ?? "";
      rules.define(name, [rule, ...otherTexts(this.context)]);
    });
  }

  private json() {
    return this.context.writer(markupJsonDialect(this.raw.tag));
  }

  /** JSON, and the words of Python that templates print. */
  private typed(shapes: readonly Shape[], pointer: string): readonly string[] {
    const { rules } = this.context;
    const value = this.json().value({ pointer, shapes: [...shapes] });
    const words = shapes.flatMap(({ kind }) =>
      kind === "boolean" ? ["True", "False"] : kind === "null" ? ["None"] : [],
    );
    if (words.length === 0) return [`${value} ${this.raw.close}`];
    const typed = rules.define(rules.name("typed"), [value, ...words.map((word) => literal(word))]);
    return [`${typed} ${this.raw.close}`];
  }

  private texts(shape: Shape, pointer: string): readonly string[] {
    if (shape.kind === "literal") {
      return shape.values.flatMap((value) => (typeof value === "string" ? (literalText(value, this.form) ?? []) : []));
    }
    if (shape.kind !== "string") return [];
    return this.isFree(shape) ? [this.free()] : this.constrained(shape, pointer);
  }

  private isFree({ min, max, pattern }: StringShape): boolean {
    return min === 0 && max === null && pattern === null;
  }

  private constrained(shape: StringShape, pointer: string): readonly string[] {
    const max = shape.max !== null && shape.max <= COUNT_MAX ? shape.max : null;
    const rule = this.json().constrained(shape, max, this.form, pointer);
    return rule === null ? [] : [rule];
  }
}

function flat(node: SchemaNode): readonly Shape[] {
  return node.shapes.flatMap((shape) => (shape.kind === "node" ? flat(shape.node) : [shape]));
}

function isText(shape: Shape): boolean {
  return (
    shape.kind === "string" || (shape.kind === "literal" && shape.values.some((value) => typeof value === "string"))
  );
}
