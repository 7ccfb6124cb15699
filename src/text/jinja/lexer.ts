/**
 * Template text → tokens, by the lexical rules of Jinja2 with `trim_blocks` and `lstrip_blocks`: the newline after a
 * block tag goes, blanks before a block tag that stands first on its line go, `-` eats white space, `+` keeps it.
 */
import { TemplateError } from "./errors.ts";
import { SOURCE_MAX } from "./limits.ts";
import { decodeString } from "./string-literal.ts";
import type { Token, TokenType } from "./tokens.ts";
import { SPACE_CLASS, trimEnd } from "./unicode.ts";

const WS = `${SPACE_CLASS}*`;
const OPENING = new RegExp(`\\{%([-+]?)${WS}raw${WS}(?:-%\\}${WS}|%\\})|\\{([%#{])([-+]?)`, "g");
const RAW_END = new RegExp(`\\{%([-+]?)${WS}endraw${WS}(?:\\+%\\}|-%\\}${WS}|%\\}\\n?)`, "g");
const BLOCK_END = new RegExp(`\\+%\\}|-%\\}${WS}|%\\}\\n?`, "y");
const VARIABLE_END = new RegExp(`-\\}\\}${WS}|\\}\\}`, "y");
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}${WS}|#\\}\\n?`, "g");
const BLANKS = new RegExp(`${SPACE_CLASS}+`, "y");
const ONLY_BLANKS = new RegExp(`^${SPACE_CLASS}+$`);
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME = /[\p{L}\p{N}_]+/uy;
const IDENTIFIER = /^[\p{ID_Start}_][\p{ID_Continue}]*$/u;
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;
const CLOSER: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

/** All tokens of a template, ending in `eof`. Throws `TemplateError` on anything that is not one. */
export function tokenize(source: string): Token[] {
  if (source.length > SOURCE_MAX) {
    throw new TemplateError(`the template has ${source.length} characters, more than ${SOURCE_MAX}`);
  }
  const text = source.replace(/\r\n?/g, "\n").replace(/\n$/, "");
  return new Lexer(text).run();
}

class Lexer {
  private readonly tokens: Token[] = [];
  private at = 0;
  private line = 1;
  /** Whether the text so far ends at the start of a line, as far as `lstrip_blocks` is concerned. */
  private lineStarting = true;

  private nextNewline: number;

  constructor(private readonly text: string) {
    this.nextNewline = text.indexOf("\n");
  }

  run(): Token[] {
    while (this.at < this.text.length) this.root();
    this.push("eof", "");
    return this.tokens;
  }

  /** Text up to the next tag, then the tag. */
  private root(): void {
    OPENING.lastIndex = this.at;
    const match = OPENING.exec(this.text);
    if (match === null) {
      this.data(this.text.slice(this.at));
      this.at = this.text.length;
      return;
    }
    const kind = match[2] ?? "raw";
    const sign = match[1] ?? match[3] ?? "";
    this.data(this.strip(this.text.slice(this.at, match.index), sign, kind !== "{"));
    this.moveTo(match.index + match[0].length);
    if (kind === "raw") this.raw();
    else if (kind === "#") this.comment();
    else if (kind === "%") this.tag("block_begin", "block_end", BLOCK_END);
    else this.tag("variable_begin", "variable_end", VARIABLE_END);
  }

  /** Removes what the tag behind `data` takes from it. */
  private strip(data: string, sign: string, isBlock: boolean): string {
    if (sign === "-") return trimEnd(data);
    if (sign === "+" || !isBlock) return data;
    const lineStart = data.lastIndexOf("\n") + 1;
    const startsLine = lineStart > 0 || this.lineStarting;
    return startsLine && ONLY_BLANKS.test(data.slice(lineStart)) ? data.slice(0, lineStart) : data;
  }

  private comment(): void {
    COMMENT_END.lastIndex = this.at;
    const match = COMMENT_END.exec(this.text);
    if (match === null) throw this.error("missing end of comment tag");
    this.moveTo(match.index + match[0].length);
  }

  private raw(): void {
    RAW_END.lastIndex = this.at;
    const match = RAW_END.exec(this.text);
    if (match === null) throw this.error("missing end of raw block");
    this.data(this.strip(this.text.slice(this.at, match.index), match[1] ?? "", true));
    this.moveTo(match.index + match[0].length);
  }

  /** The inside of `{% %}` or `{{ }}`. Its end counts only outside brackets. */
  private tag(begin: TokenType, end: TokenType, endPattern: RegExp): void {
    this.push(begin, "");
    const open: string[] = [];
    for (;;) {
      if (open.length === 0) {
        const closing = this.match(endPattern);
        if (closing !== null) {
          this.push(end, "");
          this.moveTo(this.at + closing.length);
          return;
        }
      }
      const blanks = this.match(BLANKS);
      if (blanks !== null) this.moveTo(this.at + blanks.length);
      else if (this.at >= this.text.length) throw this.error("unexpected end of template inside a tag");
      else this.expressionToken(open);
    }
  }

  private expressionToken(open: string[]): void {
    const head = this.text[this.at];
    if (head === '"' || head === "'") {
      this.string(head);
      return;
    }
    const number = this.match(FLOAT);
    const integer = number ?? this.match(INTEGER);
    const name = integer ?? this.match(NAME);
    if (integer !== null) {
      this.take(number === null ? "integer" : "float", integer, integer.replaceAll("_", ""));
    } else if (name !== null) {
      if (!IDENTIFIER.test(name)) throw this.error(`'${name}' is not a name`);
      this.take("name", name, name);
    } else {
      const operator = this.match(OPERATOR);
      if (operator === null) throw this.error(`unexpected character '${head}'`);
      this.balance(operator, open);
      this.take("operator", operator, operator);
    }
  }

  private balance(operator: string, open: string[]): void {
    const closer = CLOSER[operator];
    if (closer !== undefined) open.push(closer);
    else if (operator === ")" || operator === "]" || operator === "}") {
      const expected = open.pop();
      if (expected === undefined) throw this.error(`unexpected '${operator}'`);
      if (expected !== operator) throw this.error(`unexpected '${operator}', expected '${expected}'`);
    }
  }

  private string(quote: string): void {
    let end = this.at + 1;
    while (end < this.text.length && this.text[end] !== quote) end += this.text[end] === "\\" ? 2 : 1;
    if (end >= this.text.length) throw this.error("unterminated string");
    const source = this.text.slice(this.at, end + 1);
    this.take("string", source, decodeString(source.slice(1, -1), this.line));
  }

  private match(pattern: RegExp): string | null {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text)?.[0] ?? null;
  }

  private take(type: TokenType, source: string, value: string): void {
    this.push(type, value);
    this.moveTo(this.at + source.length);
  }

  private data(text: string): void {
    if (text !== "") this.push("data", text);
  }

  private push(type: TokenType, value: string): void {
    this.tokens.push({ type, value, line: this.line });
  }

  private moveTo(end: number): void {
    while (this.nextNewline !== -1 && this.nextNewline < end) {
      this.line += 1;
      this.nextNewline = this.text.indexOf("\n", this.nextNewline + 1);
    }
    this.lineStarting = this.text[end - 1] === "\n";
    this.at = end;
  }

  private error(message: string): TemplateError {
    return new TemplateError(message).at(this.line);
  }
}
