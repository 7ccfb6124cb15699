/** The syntax tree of a template. Expressions have no line of their own: messages name the line of their statement. */

export type BinaryOperator = "+" | "-" | "*" | "/" | "//" | "%" | "**";
export type CompareOperator = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in";

/** A call's operands, for functions, filters and tests. */
export interface CallOperands {
  readonly args: readonly Expression[];
  readonly keywords: readonly (readonly [string, Expression])[];
  readonly spreadArgs: Expression | null;
  readonly spreadKeywords: Expression | null;
}

export type Expression =
  | { readonly kind: "constant"; readonly value: null | boolean | bigint | number | string }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "list" | "tuple"; readonly items: readonly Expression[] }
  | { readonly kind: "dict"; readonly entries: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: "attribute"; readonly object: Expression; readonly name: string }
  | { readonly kind: "item"; readonly object: Expression; readonly index: Expression }
  | {
      readonly kind: "slice";
      readonly object: Expression;
      readonly start: Expression | null;
      readonly stop: Expression | null;
      readonly step: Expression | null;
    }
  | { readonly kind: "call"; readonly callee: Expression; readonly operands: CallOperands }
  /** `input` is null in a filter block, where the block's text takes its place. */
  | {
      readonly kind: "filter";
      readonly name: string;
      readonly input: Expression | null;
      readonly operands: CallOperands;
    }
  | { readonly kind: "test"; readonly name: string; readonly input: Expression; readonly operands: CallOperands }
  | { readonly kind: "unary"; readonly operator: "-" | "+" | "not"; readonly operand: Expression }
  | {
      readonly kind: "binary";
      readonly operator: BinaryOperator;
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly kind: "concat"; readonly parts: readonly Expression[] }
  | {
      readonly kind: "compare";
      readonly first: Expression;
      readonly rest: readonly (readonly [CompareOperator, Expression])[];
    }
  | { readonly kind: "logic"; readonly operator: "and" | "or"; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: "conditional";
      readonly test: Expression;
      readonly whenTrue: Expression;
      readonly otherwise: Expression | null;
    };

/** What can stand on the left of `=` or between `for` and `in`. */
export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "member"; readonly object: string; readonly name: string }
  | { readonly kind: "tuple"; readonly items: readonly Target[] };

export interface Parameter {
  readonly name: string;
  readonly fallback: Expression | null;
}

export interface MacroDefinition {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly body: readonly Statement[];
}

export interface ForStatement {
  readonly kind: "for";
  readonly line: number;
  readonly target: Target;
  readonly iterable: Expression;
  readonly condition: Expression | null;
  readonly recursive: boolean;
  readonly body: readonly Statement[];
  readonly otherwise: readonly Statement[];
}

export type Statement =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "output"; readonly line: number; readonly expression: Expression }
  | {
      readonly kind: "if";
      readonly line: number;
      readonly branches: readonly { readonly test: Expression; readonly body: readonly Statement[] }[];
      readonly otherwise: readonly Statement[];
    }
  | ForStatement
  | { readonly kind: "break" | "continue"; readonly line: number }
  | { readonly kind: "set"; readonly line: number; readonly target: Target; readonly value: Expression }
  | {
      readonly kind: "set_block";
      readonly line: number;
      readonly target: Target;
      readonly filter: Expression | null;
      readonly body: readonly Statement[];
    }
  | {
      readonly kind: "with";
      readonly line: number;
      readonly bindings: readonly (readonly [Target, Expression])[];
      readonly body: readonly Statement[];
    }
  | { readonly kind: "macro"; readonly line: number; readonly macro: MacroDefinition }
  | {
      readonly kind: "call_block";
      readonly line: number;
      readonly call: Expression & { readonly kind: "call" };
      readonly caller: MacroDefinition;
    }
  | {
      readonly kind: "filter_block";
      readonly line: number;
      readonly filter: Expression;
      readonly body: readonly Statement[];
    }
  /** A `generation` block: its body in a scope of its own. */
  | { readonly kind: "scope"; readonly line: number; readonly body: readonly Statement[] };
