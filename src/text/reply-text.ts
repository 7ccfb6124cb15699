/**
 * The text chain of one row: ids → detokenizer → reply parser → stop strings (in the answer only) → pieces with their
 * tokens. A token travels with the piece that its text completes; tokens whose text is withheld or swallowed (half a
 * character, a possible stop string, a marker) come with the next piece or at the end. The reply ends with the token that
 * completed a stop string, also when that is known later, or with that of the first call where only one is wanted.
 */
import type { ParsedCall, ReplyEvent, TextEnd } from "./reply/events.ts";
import { PLAIN_REPLY, type ReplyForm, ReplyParser } from "./reply/reply-parser.ts";
import type { Slice } from "./reply/slice.ts";
import { StopFilter } from "./stop-filter.ts";
import type { StopMatcher } from "./stop-strings.ts";
import { type Span, TextSources } from "./text-sources.ts";

/** Ids in, whole characters out; the concatenation is the text of all ids. */
export interface IncrementalText {
  push(id: number): string;
  /** What is still held back (an incomplete character as U+FFFD). */
  flush(): string;
}

/** One committed token of a text. `L`: what is reported of it. */
export interface TextToken<L> {
  readonly id: number;
  readonly logprob: L | null;
  /** Where its text begins in the whole text, in code points. */
  readonly offset: number;
  /** False for tokens without visible text: end-of-sequence ids, markers, calls, and what a stop string took away. */
  readonly visible: boolean;
}

export type ReplyPiece<L> =
  | {
      readonly type: "text" | "reasoning";
      readonly text: string;
      readonly tokens: readonly TextToken<L>[];
      /** Where the text came from, if `push` was told. */
      readonly spans?: readonly Span<string>[];
    }
  | { readonly type: "call"; readonly call: ParsedCall; readonly tokens: readonly TextToken<L>[] };

export interface ReplyOptions {
  readonly detokenizer: IncrementalText;
  readonly stops: StopMatcher;
  /** Ids whose text never shows. */
  readonly silentIds: ReadonlySet<number>;
  readonly form?: ReplyForm;
  /** The reply ends with its first call. */
  readonly oneCall?: boolean;
}

interface PendingToken<L> {
  readonly id: number;
  readonly logprob: L | null;
  readonly offset: number;
  /** UTF-16 range of its text in the undivided output; `end` is null while the detokenizer holds its bytes. */
  readonly start: number;
  end: number | null;
  readonly silent: boolean;
  /** 1 for the row's first token. */
  readonly ordinal: number;
}

/** A piece that has no tokens yet. `end`: place behind it in the undivided output. */
type Draft =
  | { readonly type: "text" | "reasoning"; readonly slices: Slice[]; end: number }
  | { readonly type: "call"; readonly call: ParsedCall; readonly end: number };

interface ShownRange {
  readonly type: "text" | "reasoning";
  readonly start: number;
  end: number;
}

export class ReplyText<L> {
  private readonly detokenizer: IncrementalText;
  private readonly silentIds: ReadonlySet<number>;
  private readonly parser: ReplyParser;
  private readonly stops: StopFilter;
  private readonly oneCall: boolean;
  private readonly pending: PendingToken<L>[] = [];
  /** Pending tokens before this one have their end. */
  private firstOpen = 0;
  /** Tokens taken so far; frozen at the completing token once the reply has ended by itself. */
  private taken = 0;
  private position = 0;
  private codePoints = 0;
  private drafts: Draft[] = [];
  /** What showed of the pending tokens' text. */
  private shown: ShownRange[] = [];
  private thoughts = 0;
  private readonly sources = new TextSources<string>();
  /** Of the token taken last; null: nobody says. */
  private source: string | null = null;
  private called = 0;

  constructor({ detokenizer, stops, silentIds, form = PLAIN_REPLY, oneCall = false }: ReplyOptions) {
    this.detokenizer = detokenizer;
    this.silentIds = silentIds;
    this.parser = new ReplyParser(form);
    this.stops = new StopFilter(stops);
    this.oneCall = oneCall;
  }

  /** Tokens of the reply so far, the one that completed a stop string and EOS included. */
  get completionTokens(): number {
    return this.taken;
  }

  /** Those of them whose text is thoughts, as far as they have come out. */
  get reasoningTokens(): number {
    return this.thoughts;
  }

  /** The stop string that was completed. */
  get stopString(): string | null {
    return this.stops.matched;
  }

  /** The reply has ended by itself: the row is to be cancelled. */
  get isOver(): boolean {
    return this.stopString !== null || (this.oneCall && this.called > 0);
  }

  get calls(): number {
    return this.called;
  }

  /** The text was cut inside a call, which was dropped. */
  get endedInCall(): boolean {
    return this.parser.endedInCall;
  }

  /** Takes committed ids; ids after the one that ends the reply are dropped. `sources`: who proposed each of them. */
  push(
    ids: readonly number[],
    logprobs: readonly L[] | null,
    sources: readonly string[] | null = null,
  ): ReplyPiece<L>[] {
    const [only] = ids;
    if (ids.length === 1 && only !== undefined && sources === null && this.mayPass(only)) {
      return this.pushOne(only, logprobs?.[0] ?? null);
    }
    for (const [i, id] of ids.entries()) {
      if (this.isOver) break;
      this.source = sources?.[i] ?? null;
      this.taken += 1;
      const silent = this.silentIds.has(id);
      this.pending.push({
        id,
        logprob: logprobs?.[i] ?? null,
        offset: this.codePoints,
        start: this.position,
        end: null,
        silent,
        ordinal: this.taken,
      });
      if (!silent) this.advance(this.detokenizer.push(id));
    }
    return this.release();
  }

  /** No token waits for its text, and there is nothing to stop at. */
  private mayPass(id: number): boolean {
    return this.pending.length === 0 && this.stops.isInert && !this.oneCall && !this.silentIds.has(id);
  }

  /** `push` of one token, the short way where its text passes as it comes: nearly all tokens of all streams do. */
  private pushOne(id: number, logprob: L | null): ReplyPiece<L>[] {
    const text = this.detokenizer.push(id);
    const [offset, start] = [this.codePoints, this.position];
    this.source = null;
    this.taken += 1;
    if (text === "" || !this.parser.passes(text)) {
      this.pending.push({ id, logprob, offset, start, end: null, silent: false, ordinal: this.taken });
      this.advance(text);
      return this.release();
    }
    this.position += text.length;
    this.codePoints += text.length === 1 ? 1 : [...text].length;
    return [{ type: "text", text, tokens: [{ id, logprob, offset, visible: true }] }];
  }

  /** Ends the text: releases what was withheld. Afterwards `rest` gives the tokens that no piece carried. */
  finish(end: TextEnd): ReplyPiece<L>[] {
    if (this.isOver) return [];
    this.advance(this.detokenizer.flush());
    if (!this.isOver) this.read(this.parser.finish(end));
    if (!this.isOver) this.show("text", this.stops.flush());
    this.cutAtStop();
    return this.release();
  }

  /** Committed tokens that no piece carried, in order. Call after `finish`. */
  rest(): readonly TextToken<L>[] {
    this.firstOpen = 0;
    return this.pending.splice(0).map((token) => this.asTextToken(token));
  }

  /** New text from the detokenizer: gives the tokens that it completes their end, and passes it on. */
  private advance(piece: string): void {
    if (piece === "") return;
    this.position += piece.length;
    if (this.source !== null) this.sources.mark(this.position, this.source);
    this.codePoints += [...piece].length;
    for (; this.firstOpen < this.pending.length; this.firstOpen++) {
      const token = this.pending[this.firstOpen];
      if (token !== undefined && !token.silent) token.end = this.position;
    }
    this.read(this.parser.push(piece));
  }

  private read(events: readonly ReplyEvent[]): void {
    for (const event of events) {
      if (this.isOver) return;
      if (event.type === "text") this.show("text", this.stops.push(event));
      else {
        // A stop string does not go on across thoughts or a call.
        this.show("text", this.stops.flush());
        if (this.stopString === null) this.pass(event);
      }
      this.cutAtStop();
    }
  }

  private pass(event: Exclude<ReplyEvent, { type: "text" }>): void {
    if (event.type === "reasoning") this.show("reasoning", [event]);
    else {
      this.called += 1;
      this.drafts.push({ type: "call", call: event.call, end: event.end });
      if (this.oneCall) this.cutAt(event.end);
    }
  }

  private show(type: "text" | "reasoning", slices: readonly Slice[]): void {
    for (const slice of slices) {
      const { text, start } = slice;
      const end = start + text.length;
      const draft = this.drafts.at(-1);
      if (draft?.type === type) {
        draft.slices.push(slice);
        draft.end = end;
      } else this.drafts.push({ type, slices: [slice], end });
      const range = this.shown.at(-1);
      if (range?.type === type && range.end === start) range.end = end;
      else this.shown.push({ type, start, end });
    }
  }

  private cutAtStop(): void {
    if (this.stops.matchEnd !== null) this.cutAt(this.stops.matchEnd);
  }

  /** Takes back the tokens after the one whose text reaches up to `place`. */
  private cutAt(place: number): void {
    const last = this.pending.findLastIndex((token) => token.start < place);
    const token = this.pending[last];
    if (token === undefined) return;
    this.taken = Math.min(this.taken, token.ordinal);
    this.pending.splice(last + 1);
    this.firstOpen = Math.min(this.firstOpen, this.pending.length);
  }

  /** The drafts with the tokens whose whole text is behind them, and the silent ones among them. */
  private release(): ReplyPiece<L>[] {
    const drafts = this.drafts;
    this.drafts = [];
    return drafts.map((draft) => {
      const last = this.pending.findLastIndex((token) => token.end !== null && token.end <= draft.end);
      const tokens = this.pending.splice(0, last + 1).map((token) => this.asTextToken(token));
      this.firstOpen = Math.max(0, this.firstOpen - last - 1);
      if (draft.type === "call") return { type: "call", call: draft.call, tokens };
      const text = draft.slices.map((slice) => slice.text).join("");
      const spans = this.source !== null && { spans: this.sources.spans(draft.slices) };
      return { type: draft.type, text, tokens, ...spans };
    });
  }

  /** A token shows when at least a part of its text is out. Called for each token once, in order. */
  private asTextToken(token: PendingToken<L>): TextToken<L> {
    const { id, logprob, offset, start } = token;
    while (this.shown[0] !== undefined && this.shown[0].end <= start) this.shown.shift();
    const range = this.shown[0];
    const visible = !token.silent && token.end !== null && range !== undefined && range.start < token.end;
    if (visible && range.type === "reasoning") this.thoughts += 1;
    return { id, logprob, offset, visible };
  }
}
