/**
 * Shapes → rules of one dialect. Every node is a rule, so that nothing nests; lists of elements and members go on to the
 * right and hold their own closer, which is the form that masks are found quickly in (structured-output.md §3.5).
 */
import { type Automaton, both, explore, ofLength } from "./automaton.ts";
import { ANYTHING, charsOf, difference } from "./charset.ts";
import { type Brackets, compareNames, type Dialect, literalValue, type MemberForm } from "./dialect.ts";
import { GrammarError } from "./errors.ts";
import { textOf } from "./grammar-text.ts";
import { type Json, pointerTo } from "./json-tree.ts";
import { COUNT_MAX, LENGTH_MAX } from "./keywords.ts";
import { numberRule } from "./numbers.ts";
import { literal, literalsRule, type Rules } from "./rules.ts";
import type { ArrayShape, ObjectShape, SchemaNode, Shape, StringShape } from "./shapes.ts";
import { anyText, type TextForm, writeText } from "./text-form.ts";

/** Rules of one grammar: beyond that it takes longer to compile than anybody waits. */
const RULES_MAX = 20_000;
/** Names of members are not counted beside the grammar: they are unrolled up to here. */
const NAME_LENGTH_MAX = 256;

export interface WriterOptions {
  /** Large limits are counted beside the grammar; else they are not enforced. */
  readonly counted: boolean;
  readonly strict: boolean;
  readonly relax: (pointer: string) => void;
}

interface WrittenText {
  /** Null: the form cannot write any. */
  readonly rule: string | null;
  readonly exact: boolean;
}

export class SchemaWriter {
  private readonly values = new Map<SchemaNode, string>();
  /** By what they allow: tools of one request have the same formats and lengths over and over. */
  private readonly texts = new Map<TextForm, Map<string, WrittenText>>();

  constructor(
    readonly rules: Rules,
    readonly dialect: Dialect,
    private readonly options: WriterOptions,
  ) {}

  /** The rule of a node's values. @throws GrammarError when it cannot be written */
  value(node: SchemaNode): string {
    const known = this.values.get(node);
    if (known !== undefined) return known;
    if (this.rules.count > RULES_MAX) throw new GrammarError(node.pointer, "the schema makes too large a grammar");
    const [only, more] = node.shapes;
    if (only?.kind === "any" && more === undefined) return this.any();
    const name = this.rules.name(`v${node.pointer.split("/").at(-1)?.slice(0, 20) ?? ""}`);
    this.values.set(node, name);
    const alternatives = node.shapes.flatMap((shape) => this.shape(shape, node.pointer));
    if (alternatives.length === 0)
      throw new GrammarError(node.pointer, `no value can be written in ${this.dialect.name} form`);
    this.rules.define(name, alternatives);
    return name;
  }

  /** Any value at all. */
  any(): string {
    return this.rules.once(this.own("any"), (name) => {
      const { words: own, otherBooleans, otherNulls } = this.dialect;
      const words = [...Object.values(own), ...otherBooleans, ...otherNulls].map(literal);
      const number = numberRule(this.rules, { kind: "number", integer: false, min: null, max: null }) ?? "";
      const array = this.rules.name("any_array");
      this.rules.define(name, [this.anyObject(), array, ...this.freeTexts(), number, ...words]);
      this.list(array, this.dialect.array, name);
    });
  }

  /** Any object. */
  anyObject(): string {
    return this.rules.once(this.own("any_object"), (name) => {
      const member = this.rules.name("any_member");
      this.list(name, this.dialect.object, member);
      const key = this.freeKey([], null, this.dialect.keyText);
      this.rules.define(member, [`${key} ${this.dialect.colon} ${this.any()}`]);
    });
  }

  /** Strings without any constraint, as fragments. */
  freeTexts(): string[] {
    return this.dialect.texts.map((form, i) => {
      const rule = this.rules.once(this.own(`text${i}`), (name) => {
        const first = writeText(this.rules, `text_rest${i}`, anyText(form), form);
        this.rules.define(name, [first ?? form.close]);
      });
      return [form.open, rule].filter((part) => part !== "").join(" ");
    });
  }

  private own(name: string): string {
    return `${this.dialect.name}_${name}`;
  }

  private shape(shape: Shape, pointer: string): string[] {
    const { words, otherBooleans, otherNulls } = this.dialect;
    switch (shape.kind) {
      case "any":
        return [this.any()];
      case "null":
        return [words.null, ...otherNulls].map(literal);
      case "boolean":
        return [words.true, words.false, ...otherBooleans].map(literal);
      case "literal":
        return this.literals(shape.values);
      case "number":
        return present(numberRule(this.rules, shape));
      case "string":
        return this.text(shape, pointer);
      case "array":
        return [this.array(shape, pointer)];
      case "object":
        return [this.object(shape, pointer, this.dialect, (node) => this.value(node))];
      case "node":
        return [this.value(shape.node)];
    }
  }

  /** Constants; texts are read letter by letter, so that shared beginnings are read once. */
  private literals(values: readonly Json[]): string[] {
    const fragments = values.flatMap((value) => literalValue(value, this.dialect) ?? []);
    const texts = new Set(fragments.flatMap((fragment) => textOf(fragment) ?? []));
    if (texts.size === 0) return fragments;
    const others = fragments.filter((fragment) => textOf(fragment) === null);
    return [
      literalsRule(
        this.rules,
        "constant",
        Array.from(texts, (text) => ({ text, rest: "" })),
      ),
      ...others,
    ];
  }

  /** `open item comma item … close`, any number of items. */
  private list(name: string, { open, close, empty }: Brackets, item: string): void {
    const rest = this.rules.name(`${name}_rest`);
    this.rules.define(name, [empty, `${open} ${item} ${rest}`]);
    this.rules.define(rest, [close, `${this.dialect.comma} ${item} ${rest}`]);
  }

  private text(shape: StringShape, pointer: string): string[] {
    const [form] = this.dialect.texts;
    const max = this.countedLimit(
      shape.max,
      this.options.counted ? LENGTH_MAX : COUNT_MAX,
      pointerTo(pointer, "maxLength"),
    );
    if (shape.pattern === null && shape.min === 0 && max === null) return this.freeTexts();
    const rule = this.constrained(shape, max, form, pointer);
    return present(rule).map((name) => (form.open === "" ? name : `${form.open} ${name}`));
  }

  /** The rule of a text with a pattern or a length, behind its opener. */
  constrained(shape: StringShape, max: number | null, form: TextForm, pointer: string): string | null {
    const ofForm = this.texts.get(form) ?? new Map<string, WrittenText>();
    this.texts.set(form, ofForm);
    const key = JSON.stringify([shape.min, max, shape.pattern]);
    const written = ofForm.get(key) ?? this.writtenText(shape, max, form);
    ofForm.set(key, written);
    if (!written.exact && !this.options.strict) this.options.relax(pointerTo(pointer, "pattern"));
    return written.rule;
  }

  private writtenText({ min, pattern }: StringShape, max: number | null, form: TextForm): WrittenText {
    let automaton: Automaton = both(anyText(form), ofLength(min, max, form.alphabet));
    if (pattern !== null) automaton = both(automaton, pattern);
    let exact = true;
    const rule = writeText(this.rules, "text_of", automaton, form, this.options.strict ? "fewer" : "more", () => {
      exact = false;
    });
    return { rule, exact };
  }

  private countedLimit(max: number | null, most: number, pointer: string): number | null {
    if (max === null || max <= most) return max;
    if (!this.options.counted) this.options.relax(pointer);
    return null;
  }

  private array({ prefix, items, min, max: given }: ArrayShape, pointer: string): string {
    const { open, close, empty } = this.dialect.array;
    const max = this.countedLimit(given, Math.max(COUNT_MAX, prefix.length), pointerTo(pointer, "maxItems"));
    const rest = items === null ? "" : this.value(items);
    const item = (i: number) => {
      const node = prefix[i];
      return node === undefined ? rest : this.value(node);
    };
    // Rule i: i elements are written. Behind the last one that counts the rule goes on with itself.
    const last = max ?? Math.max(min, prefix.length, 1);
    const names = Array.from({ length: last + 1 }, (_, i) => this.rules.name(i === 0 ? "array" : `array_${i}`));
    for (let i = last; i >= 0; i--) {
      const alternatives = i >= min ? [i === 0 ? empty : close] : [];
      const next = names[Math.min(i + 1, last)] ?? "";
      if (i < last || max === null) {
        alternatives.push(i === 0 ? `${open} ${item(0)} ${next}` : `${this.dialect.comma} ${item(i)} ${next}`);
      }
      this.rules.define(names[i] ?? "", alternatives);
    }
    return names[0] ?? "";
  }

  /** The rule of an object in any form of members. @param valueRule the rule of a member's value */
  object(shape: ObjectShape, pointer: string, form: MemberForm, valueRule: (node: SchemaNode) => string): string {
    const { rules } = this;
    const properties = this.properties(shape, pointer, form, valueRule);
    const max = this.countedLimit(shape.max, COUNT_MAX, pointerTo(pointer, "maxProperties"));
    const others = shape.others === null ? null : this.member(shape, valueRule(shape.others), form);
    // State (i, n): the properties before i are decided, n members are written, as far as the number matters.
    const most = Math.max(1, shape.min, max ?? 0);
    const names = new Map<string, string>();
    const pending: [number, number][] = [];
    const state = (i: number, n: number): string => {
      const key = `${i},${n}`;
      const known = names.get(key);
      if (known !== undefined) return known;
      if (rules.count + pending.length > RULES_MAX)
        throw new GrammarError(pointer, "the schema makes too large a grammar");
      const name = rules.name("members");
      names.set(key, name);
      pending.push([i, n]);
      return name;
    };
    const first = state(0, 0);
    for (let next = pending.shift(); next !== undefined; next = pending.shift()) {
      const [i, n] = next;
      const after = (at: number) => state(at, Math.min(n + 1, most));
      const comma = n === 0 || form.comma === "" ? "" : `${form.comma} `;
      const left = properties.slice(i);
      const needed = left.filter(({ required }) => required).length;
      const property = properties[i];
      // Only steps from which the counts can still come out right: a dead end would leave no token to choose.
      const room = (extra: number) => max === null || n + extra <= max;
      const reach = others === null ? n + left.length - 1 : Number.POSITIVE_INFINITY;
      const alternatives: string[] = [];
      if (property === undefined) {
        if (n >= shape.min) alternatives.push(form.object.close);
        if (others !== null && room(1)) alternatives.push(`${comma}${others} ${after(i)}`);
      } else {
        const more = property.required ? needed : needed + 1;
        if (room(more)) alternatives.push(`${comma}${property.fragment} ${after(i + 1)}`);
        if (!property.required && reach >= shape.min) alternatives.push(state(i + 1, n));
      }
      rules.define(names.get(`${i},${n}`) ?? "", alternatives);
    }
    return rules.define(rules.name("object"), [`${form.object.open} ${first}`.trimStart()]);
  }

  private properties(
    shape: ObjectShape,
    pointer: string,
    form: MemberForm,
    valueRule: (node: SchemaNode) => string,
  ): { readonly fragment: string; readonly required: boolean }[] {
    const sorted = form.sorted ? [...shape.properties].sort((a, b) => compareNames(a.name, b.name)) : shape.properties;
    return sorted.flatMap(({ name, node, required }) => {
      const key = form.key(name);
      if (key !== null) return [{ fragment: `${key} ${valueRule(node)}`, required }];
      if (!required) return [];
      throw new GrammarError(pointerTo(pointer, "properties", name), "this model's calls cannot write this name");
    });
  }

  /** A member that no property names. */
  private member(shape: ObjectShape, value: string, form: MemberForm): string {
    const taken = shape.properties.map(({ name }) => name);
    const key = this.freeKey(taken, shape.names, form.keyText);
    return this.rules.define(this.rules.name("member"), [`${key} ${form.colon} ${value}`]);
  }

  /** A name that is none of `taken`. */
  private freeKey(taken: readonly string[], names: StringShape | null, form: TextForm): string {
    // A bare name is not empty.
    const min = Math.max(names?.min ?? 0, form.close === "" ? 1 : 0);
    const max = names?.max != null && names.max <= NAME_LENGTH_MAX ? names.max : null;
    if (names?.max != null && max === null) this.options.relax("propertyNames/maxLength");
    let automaton = both(both(anyText(form), ofLength(min, max, form.alphabet)), noneOf(taken));
    if (names !== null && names.pattern !== null) automaton = both(automaton, names.pattern);
    const rule = writeText(this.rules, "key", automaton, form);
    return [form.open, rule ?? NOTHING].filter((part) => part !== "").join(" ");
  }
}

/** A reserved character that no token spells: XGrammar has no rule without alternatives. */
const NOTHING = literal("\b");

function present(rule: string | null): string[] {
  return rule === null ? [] : [rule];
}

/** Every text but some. */
function noneOf(words: readonly string[]): Automaton {
  if (words.length === 0) return ofLength(0, null, ANYTHING);
  const ends = new Set(words);
  const children = new Map<string, Set<string>>();
  for (const word of words) {
    let prefix = "";
    for (const character of word) {
      children.set(prefix, (children.get(prefix) ?? new Set<string>()).add(character));
      prefix += character;
    }
  }
  return explore<string | null>(
    "",
    (prefix) => (prefix === null ? "free" : `=${prefix}`),
    (prefix) => prefix === null || !ends.has(prefix),
    (prefix) => {
      if (prefix === null) return [{ on: ANYTHING, to: null }];
      const own = [...(children.get(prefix) ?? [])];
      return [
        ...own.map((character) => ({ on: charsOf(character), to: prefix + character })),
        { on: difference(ANYTHING, charsOf(own.join(""))), to: null },
      ];
    },
  );
}
