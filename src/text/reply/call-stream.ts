/**
 * Calls in the text of an answer (tool-calls.md §4), for one family's syntax. Invariant: text comes out as it came in,
 * but for calls and the white space before, between and behind them; what turns out to be no call is text. Nothing is held back but
 * a possible beginning of an opener, white space before it, and what may be a call. Never throws, each character is
 * looked at a bounded number of times.
 */
import type { CallScanner, CallSyntax } from "./call-scanner.ts";
import type { CallableTools, ParsedCall, ReplyEvent, TextEnd } from "./events.ts";
import { isBlank, LiteralSearch } from "./literal.ts";
import { HeldText, type Slice } from "./slice.ts";

export class CallStream {
  private readonly held = new HeldText();
  /** Characters of `held` that were looked at: `solid` ones of text, `blanks`, then a beginning of an opener. */
  private seen = 0;
  private solid = 0;
  private blanks = 0;
  private readonly opener: LiteralSearch;
  private scanner: CallScanner | null = null;
  /** A call was the last thing that came out: white space is dropped. */
  private gap = false;
  private cut = false;
  private out: ReplyEvent[] = [];

  constructor(
    private readonly syntax: CallSyntax,
    private readonly tools: CallableTools,
    private readonly onlyCalls: boolean,
  ) {
    this.opener = new LiteralSearch(syntax.opener);
  }

  /** The text ended inside a call, which was dropped. */
  get endedInCall(): boolean {
    return this.cut;
  }

  push(slice: Slice): ReplyEvent[] {
    this.held.append(slice);
    this.read(slice.text);
    if (this.scanner === null) this.giveText(this.solid);
    return this.given();
  }

  /** The channel is over, but not the reply: a call that is open ends here. */
  border(): ReplyEvent[] {
    if (this.scanner !== null) this.endCall("ended");
    return this.given();
  }

  finish(end: TextEnd): ReplyEvent[] {
    if (this.scanner !== null) this.endCall(end);
    else if (end === "cut" && this.opener.matched > 0 && (this.gap || this.onlyCalls)) {
      // Where a call was to come, half an opener is the beginning of one.
      this.giveText(this.solid);
      this.drop(this.held.length);
      this.cut = true;
    } else {
      if (this.gap) this.drop(this.blanks);
      this.giveText(this.held.length);
    }
    return this.given();
  }

  private read(units: string): void {
    for (let i = 0; i < units.length; i++) {
      this.seen += 1;
      if (this.scanner === null) this.readText(units.charAt(i));
      else this.readCall(this.scanner, units.charAt(i));
    }
  }

  private readText(unit: string): void {
    const before = this.opener.matched;
    if (this.opener.step(unit)) {
      this.giveText(this.solid);
      if (this.gap) this.drop(this.blanks);
      this.blanks = 0;
      this.scanner = this.syntax.scanner();
      return;
    }
    // What the beginning of an opener no longer covers is text.
    const freed = before + 1 - this.opener.matched;
    const begun = this.syntax.opener.slice(0, before) + unit;
    for (let i = 0; i < freed; i++) this.countText(begun.charAt(i));
  }

  private countText(unit: string): void {
    if (isBlank(unit)) {
      this.blanks += 1;
      return;
    }
    if (this.gap) this.drop(this.blanks);
    else this.solid += this.blanks;
    this.gap = false;
    this.blanks = 0;
    this.solid += 1;
  }

  private readCall(scanner: CallScanner, unit: string): void {
    const state = scanner.step(unit);
    if (state === "open") return;
    const calls = state === "impossible" ? null : scanner.take(this.tools);
    if (calls === null) this.giveUp(state === "impossible" ? scanner.loose : "");
    else {
      this.giveCalls(calls, this.seen);
      if (state === "closed") this.scanner = null;
    }
  }

  /** No call after all: it is text, but for its last characters, which are looked at once more. */
  private giveUp(loose: string): void {
    this.scanner = null;
    this.solid = this.seen - loose.length;
    if (this.solid > 0) this.gap = false;
    this.seen = this.solid;
    this.read(loose);
  }

  private endCall(end: TextEnd): void {
    const rest = this.scanner?.finish(end, this.tools);
    this.scanner = null;
    if (rest === undefined) return;
    if (rest.calls.length > 0) this.giveCalls(rest.calls, this.held.length);
    if (rest.text === "text") this.giveText(this.held.length);
    else this.drop(this.held.length);
    this.cut ||= rest.text === "cut";
  }

  private giveCalls(calls: readonly ParsedCall[], length: number): void {
    const end = this.held.placeBehind(length);
    for (const call of calls) this.out.push({ type: "call", call, end });
    this.drop(length);
    this.gap = true;
  }

  private giveText(length: number): void {
    if (length === 0) return;
    for (const slice of this.held.take(length)) this.out.push({ type: "text", ...slice });
    this.seen -= length;
    this.solid = 0;
    this.gap = false;
  }

  /** Takes characters away that come out nowhere; only where no solid text stands before them. */
  private drop(length: number): void {
    this.held.take(length);
    this.seen -= length;
  }

  private given(): ReplyEvent[] {
    const events = this.out;
    this.out = [];
    return events;
  }
}
