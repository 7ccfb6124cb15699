/**
 * Reads a call that is one value in brackets (JSON, Gemma's and Python's literals): where it ends is told by the depth
 * of brackets outside of strings; what it says is read once, when it is whole. Behind it only white space and the
 * closing marker may stand; the marker outside of a string also ends a value that is not whole.
 */
import { type CallScanner, type ScanRest, type ScanState, unfinished } from "./call-scanner.ts";
import type { CallableTools, ParsedCall, TextEnd } from "./events.ts";
import { isBlank, LiteralChoice, LiteralSearch } from "./literal.ts";

export interface BracketGrammar {
  readonly closer: string;
  /** What may stand from the opener on until the value is sure to have begun. */
  readonly head: { readonly partial: RegExp; readonly whole: RegExp; readonly depth: number };
  readonly strings: readonly { readonly delimiter: string; readonly escapes: boolean }[];
  /**
   * The calls of a value with its head. `isWhole`: its brackets are closed.
   * Null: it cannot be read, not even repaired.
   */
  read(value: string, isWhole: boolean, tools: CallableTools): readonly ParsedCall[] | null;
  /** The calls that are complete in a value that was cut. */
  readComplete(value: string, tools: CallableTools): readonly ParsedCall[];
}

/** A head is a name and a few blanks. */
const HEAD_MAX = 100;

export class BracketScanner implements CallScanner {
  private state: "head" | "value" | "behind" = "head";
  private value = "";
  private depth = 0;
  private escaped = false;
  /** The string that is open. */
  private string: { readonly search: LiteralSearch; readonly escapes: boolean } | null = null;
  private readonly strings: readonly { readonly search: LiteralSearch; readonly escapes: boolean }[];
  private readonly closer: LiteralSearch;
  private readonly behind: LiteralChoice<string>;
  loose = "";

  constructor(private readonly grammar: BracketGrammar) {
    this.strings = grammar.strings.map(({ delimiter, escapes }) => ({ search: new LiteralSearch(delimiter), escapes }));
    this.closer = new LiteralSearch(grammar.closer);
    this.behind = new LiteralChoice([grammar.closer]);
  }

  step(unit: string): ScanState {
    switch (this.state) {
      case "head":
        return this.readHead(unit);
      case "value":
        this.value += unit;
        return this.readValue(unit);
      case "behind":
        return this.readBehind(unit);
    }
  }

  take(tools: CallableTools): readonly ParsedCall[] | null {
    if (this.state === "behind") return this.grammar.read(this.value, true, tools);
    return this.grammar.read(this.value.slice(0, -this.closer.length), false, tools);
  }

  finish(end: TextEnd, tools: CallableTools): ScanRest {
    if (this.state === "behind") {
      const calls = this.grammar.read(this.value, true, tools);
      return calls === null ? { calls: [], text: "text" } : { calls, text: "read" };
    }
    if (this.state === "head") return unfinished(end);
    if (end === "cut") return { calls: this.grammar.readComplete(this.value, tools), text: "cut" };
    const calls = this.string === null ? this.grammar.read(this.value, false, tools) : null;
    return calls === null ? unfinished(end) : { calls, text: "read" };
  }

  private readHead(unit: string): ScanState {
    this.value += unit;
    const { partial, whole, depth } = this.grammar.head;
    if (whole.test(this.value)) {
      this.state = "value";
      this.depth = depth;
      return "open";
    }
    if (this.value.length <= HEAD_MAX && partial.test(this.value)) return "open";
    this.loose = this.value;
    return "impossible";
  }

  private readValue(unit: string): ScanState {
    if (this.string !== null) {
      this.readString(this.string, unit);
      return "open";
    }
    for (const string of this.strings) if (string.search.step(unit)) this.string = string;
    if (this.closer.step(unit)) return "closed";
    if (unit === "{" || unit === "[" || unit === "(") this.depth += 1;
    else if (unit === "}" || unit === "]" || unit === ")") {
      this.depth -= 1;
      if (this.depth <= 0) this.state = "behind";
    }
    return "open";
  }

  private readString(string: { readonly search: LiteralSearch; readonly escapes: boolean }, unit: string): void {
    if (this.escaped) this.escaped = false;
    else if (string.escapes && unit === "\\") this.escaped = true;
    else if (string.search.step(unit)) {
      this.string = null;
      this.closer.reset();
      for (const { search } of this.strings) search.reset();
    }
  }

  private readBehind(unit: string): ScanState {
    this.loose += unit;
    if (this.behind.matched === 0 && isBlank(unit)) return "open";
    const found = this.behind.step(unit);
    if (found === undefined) return "impossible";
    return found === null ? "open" : "closed";
  }
}
