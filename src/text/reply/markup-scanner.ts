/**
 * Reads a call written as markup: a name, then parameters, each from its tag to the next closing tag. Whatever stands
 * inside a value is text. Between tags only white space is allowed.
 */
import { type CallScanner, NOTHING_LEFT, type ScanRest, type ScanState, unfinished } from "./call-scanner.ts";
import type { CallableTools, ParsedCall, TextEnd } from "./events.ts";
import { objectText } from "./json-text.ts";
import { isBlank, LiteralChoice, LiteralSearch } from "./literal.ts";

export interface MarkupGrammar {
  /** Begins a call; null where the opener of the block has done so. */
  readonly callOpen: string | null;
  readonly nameEnd: string;
  readonly parameterOpen: string;
  readonly keyEnd: string;
  readonly parameterClose: string;
  readonly callClose: string;
  /** Ends the block; null where the end of the call does so. */
  readonly blockClose: string | null;
  /** The block holds any number of calls. */
  readonly isList: boolean;
  /** Verbatim sections that a value may be written in. */
  readonly verbatim: { readonly open: string; readonly close: string } | null;
  /** JSON text of a raw value, typed by the parameter's schema if there is one. */
  typed(raw: string, parameter: string, tool: object | undefined): string;
}

type Place = "call" | "name" | "tags" | "key" | "value" | "verbatim" | "behind";

/** Longer names and keys are prose. */
const NAME_MAX = 256;

export class MarkupScanner implements CallScanner {
  private place: Place;
  private tags: LiteralChoice<string>;
  private ending: LiteralSearch;
  private collected = "";
  private name = "";
  private key = "";
  private parameters = new Map<string, string>();
  private done: { readonly name: string; readonly parameters: ReadonlyMap<string, string> }[] = [];
  private hasCalls = false;
  loose = "";

  constructor(private readonly grammar: MarkupGrammar) {
    const { callOpen, nameEnd } = grammar;
    this.place = callOpen === null ? "name" : "call";
    this.tags = new LiteralChoice(callOpen === null ? [] : [callOpen]);
    this.ending = new LiteralSearch(nameEnd);
  }

  step(unit: string): ScanState {
    switch (this.place) {
      case "name":
      case "key":
        return this.readName(unit);
      case "value":
      case "verbatim":
        return this.readValue(unit);
      default:
        return this.readTag(unit);
    }
  }

  take(tools: CallableTools): readonly ParsedCall[] {
    const calls = this.done.map(({ name, parameters }) => this.call(name, parameters, tools));
    this.done = [];
    return calls;
  }

  finish(end: TextEnd, tools: CallableTools): ScanRest {
    if (this.place === "behind") return { calls: this.take(tools), text: "read" };
    const { callOpen } = this.grammar;
    const isBetween = this.place === "call" && this.hasCalls;
    const begun = this.loose.trimStart();
    if (isBetween && (begun === "" || end === "ended" || !callOpen?.startsWith(begun))) return NOTHING_LEFT;
    return unfinished(end);
  }

  private readTag(unit: string): ScanState {
    this.loose += unit;
    if (this.tags.matched === 0 && isBlank(unit)) return "open";
    const found = this.tags.step(unit);
    if (found === null) return "open";
    if (found === undefined) return "impossible";
    this.loose = "";
    const { callOpen, callClose, nameEnd, keyEnd } = this.grammar;
    if (found === callClose && this.place === "tags") return this.endCall();
    if (found !== callOpen && found !== this.grammar.parameterOpen) return "closed";
    const isCall = this.place === "call";
    this.place = isCall ? "name" : "key";
    this.ending = new LiteralSearch(isCall ? nameEnd : keyEnd);
    this.collected = "";
    return "open";
  }

  private readName(unit: string): ScanState {
    this.collected += unit;
    if (!this.ending.step(unit)) {
      if (unit !== "<" && unit !== "\n" && this.collected.length <= NAME_MAX) return "open";
      this.loose = unit;
      return "impossible";
    }
    const name = this.collected.slice(0, -this.ending.length).trim();
    this.collected = "";
    if (name === "" || name.includes('"')) {
      this.loose = "";
      return "impossible";
    }
    if (this.place === "key") {
      this.key = name;
      this.place = "value";
      this.ending = new LiteralSearch(this.grammar.parameterClose);
    } else {
      this.name = name;
      this.expectTags();
    }
    return "open";
  }

  private readValue(unit: string): ScanState {
    this.collected += unit;
    const { verbatim, parameterClose } = this.grammar;
    if (this.ending.step(unit)) {
      if (this.place === "verbatim") {
        this.place = "value";
        this.ending = new LiteralSearch(parameterClose);
      } else {
        this.parameters.set(this.key, this.collected.slice(0, -parameterClose.length));
        this.expectTags();
      }
    } else if (verbatim !== null && this.place === "value" && unit === verbatim.open.at(-1)) {
      // Only a value that begins with a section is read as one.
      if (this.collected.length < NAME_MAX && this.collected.trimStart() === verbatim.open) {
        this.place = "verbatim";
        this.ending = new LiteralSearch(verbatim.close);
      }
    }
    return "open";
  }

  private expectTags(): void {
    this.place = "tags";
    this.tags = new LiteralChoice([this.grammar.parameterOpen, this.grammar.callClose]);
    this.loose = "";
  }

  private endCall(): ScanState {
    this.done.push({ name: this.name, parameters: this.parameters });
    this.parameters = new Map();
    this.hasCalls = true;
    const { blockClose, callOpen, isList } = this.grammar;
    if (blockClose === null) return "closed";
    this.place = isList ? "call" : "behind";
    this.tags = new LiteralChoice(isList && callOpen !== null ? [callOpen, blockClose] : [blockClose]);
    return isList ? "call" : "open";
  }

  private call(name: string, parameters: ReadonlyMap<string, string>, tools: CallableTools): ParsedCall {
    const schema = tools.get(name)?.parameters;
    const members = Array.from(parameters, ([key, raw]) => [key, this.grammar.typed(raw, key, schema)] as const);
    return { name, arguments: objectText(members) };
  }
}
