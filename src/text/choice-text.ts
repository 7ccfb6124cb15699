/**
 * The text chain of one row: ids → detokenizer → stop strings → released text with its tokens. A token travels with
 * the text that it completes: tokens whose text is withheld (half a character, a possible stop string) come with the
 * piece that releases them. The answer ends with the token that completed a stop string, also when that is known later.
 */
import type { StopMatcher } from "./stop-strings.ts";

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
  /** False for tokens without visible text: end-of-sequence ids and what a stop string took away. */
  readonly visible: boolean;
}

export interface ReleasedText<L> {
  readonly text: string;
  readonly tokens: readonly TextToken<L>[];
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

export class ChoiceText<L> {
  private readonly pending: PendingToken<L>[] = [];
  /** Tokens taken so far; frozen at the completing token once a stop string is found. */
  private taken = 0;
  /** For each push into the stop matcher, how many tokens had been taken. */
  private readonly takenAtPush: number[] = [];
  private position = 0;
  private codePoints = 0;
  private released = 0;

  constructor(
    private readonly detokenizer: IncrementalText,
    private readonly stops: StopMatcher,
    private readonly silentIds: ReadonlySet<number>,
  ) {}

  /** Tokens of the answer so far, the one that completed a stop string and EOS included. */
  get completionTokens(): number {
    return this.taken;
  }

  /** The stop string that was completed; the row is to be cancelled then. */
  get stopString(): string | null {
    return this.stops.matched;
  }

  /** Takes committed ids; ids after the one that completes a stop string are dropped. */
  push(ids: readonly number[], logprobs: readonly L[] | null): ReleasedText<L> {
    let text = "";
    for (const [i, id] of ids.entries()) {
      if (this.stopString !== null) break;
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
      if (!silent) text += this.advance(this.detokenizer.push(id));
    }
    return this.release(text);
  }

  /** Ends the text: releases what was withheld. Afterwards `rest` gives the tokens without visible text. */
  finish(): ReleasedText<L> {
    if (this.stopString !== null) return { text: "", tokens: [] };
    const tail = this.advance(this.detokenizer.flush());
    const withheld = this.stops.flush();
    this.released += withheld.length;
    this.cutAtStop();
    return this.release(tail + withheld);
  }

  /** Committed tokens that no released text carried, in order. Call after `finish`. */
  rest(): readonly TextToken<L>[] {
    return this.pending.splice(0).map((token) => this.asTextToken(token));
  }

  /** New text from the detokenizer: gives the tokens that it completes their end, and passes the stop strings. */
  private advance(piece: string): string {
    if (piece === "") return "";
    this.position += piece.length;
    this.codePoints += [...piece].length;
    for (const token of this.pending) if (token.end === null && !token.silent) token.end = this.position;
    this.takenAtPush.push(this.taken);
    const { text } = this.stops.push(piece);
    this.released += text.length;
    this.cutAtStop();
    return text;
  }

  /** Takes back the tokens after the one that completed the stop string. */
  private cutAtStop(): void {
    const { completedBy } = this.stops;
    if (completedBy === null) return;
    this.taken = Math.min(this.taken, this.takenAtPush[completedBy] ?? this.taken);
    const extra = this.pending.findIndex((token) => token.ordinal > this.taken);
    if (extra !== -1) this.pending.splice(extra);
  }

  /** `text` with the tokens whose whole text is out, and the silent ones among them. */
  private release(text: string): ReleasedText<L> {
    if (text === "") return { text, tokens: [] };
    const last = this.pending.findLastIndex((token) => token.end !== null && token.end <= this.released);
    return { text, tokens: this.pending.splice(0, last + 1).map((token) => this.asTextToken(token)) };
  }

  /** A token shows when at least a part of its text is out. */
  private asTextToken(token: PendingToken<L>): TextToken<L> {
    const visible = !token.silent && token.end !== null && token.start < this.released;
    return { id: token.id, logprob: token.logprob, offset: token.offset, visible };
  }
}
