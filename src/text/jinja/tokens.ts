/** Tokens of a template, and the stream that the parser reads them from. */
import { TemplateError } from "./errors.ts";

export type TokenType =
  | "data"
  | "block_begin"
  | "block_end"
  | "variable_begin"
  | "variable_end"
  | "name"
  | "string"
  | "integer"
  | "float"
  | "operator"
  | "eof";

export interface Token {
  readonly type: TokenType;
  /** Text of data, name or operator; decoded text of a string; digits of a number. */
  readonly value: string;
  readonly line: number;
}

const END: Token = { type: "eof", value: "", line: 0 };

/** A cursor over tokens; the last one is `eof` and is never passed. */
export class TokenStream {
  private at = 0;

  constructor(private readonly tokens: readonly Token[]) {}

  get current(): Token {
    return this.tokens[this.at] ?? END;
  }

  get following(): Token {
    return this.tokens[Math.min(this.at + 1, this.tokens.length - 1)] ?? END;
  }

  next(): Token {
    const token = this.current;
    if (token.type !== "eof") this.at += 1;
    return token;
  }

  is(type: TokenType, value?: string): boolean {
    const token = this.current;
    return token.type === type && (value === undefined || token.value === value);
  }

  isOperator(...values: readonly string[]): boolean {
    return this.current.type === "operator" && values.includes(this.current.value);
  }

  isName(...values: readonly string[]): boolean {
    return this.current.type === "name" && values.includes(this.current.value);
  }

  skip(type: TokenType, value: string): boolean {
    if (!this.is(type, value)) return false;
    this.next();
    return true;
  }

  expect(type: TokenType, value?: string): Token {
    if (this.is(type, value)) return this.next();
    throw this.error(`expected ${describe(type, value)}, got ${this.describeCurrent()}`);
  }

  describeCurrent(): string {
    return describe(this.current.type, this.current.value);
  }

  error(message: string): TemplateError {
    return new TemplateError(message).at(this.current.line);
  }
}

const WORDS: Readonly<Partial<Record<TokenType, string>>> = {
  block_begin: "'{%'",
  block_end: "'%}'",
  variable_begin: "'{{'",
  variable_end: "'}}'",
  eof: "the end of the template",
  data: "text",
};

function describe(type: TokenType, value: string | undefined): string {
  const word = WORDS[type];
  if (word !== undefined) return word;
  return value === undefined ? `a ${type}` : `'${value}'`;
}
