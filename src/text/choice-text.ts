/**
 * The text chain of a row whose text is nothing but text: `ReplyText` without thoughts and calls. What is pushed at
 * once comes out as one piece.
 */
import { type IncrementalText, type ReplyPiece, ReplyText, type TextToken } from "./reply-text.ts";
import type { StopMatcher } from "./stop-strings.ts";

export interface ReleasedText<L> {
  readonly text: string;
  readonly tokens: readonly TextToken<L>[];
}

export class ChoiceText<L> {
  private readonly reply: ReplyText<L>;

  constructor(detokenizer: IncrementalText, stops: StopMatcher, silentIds: ReadonlySet<number>) {
    this.reply = new ReplyText({ detokenizer, stops, silentIds });
  }

  /** Tokens of the answer so far, the one that completed a stop string and EOS included. */
  get completionTokens(): number {
    return this.reply.completionTokens;
  }

  /** The stop string that was completed; the row is to be cancelled then. */
  get stopString(): string | null {
    return this.reply.stopString;
  }

  /** Takes committed ids; ids after the one that completes a stop string are dropped. */
  push(ids: readonly number[], logprobs: readonly L[] | null): ReleasedText<L> {
    return released(this.reply.push(ids, logprobs));
  }

  /** Ends the text: releases what was withheld. Afterwards `rest` gives the tokens without visible text. */
  finish(): ReleasedText<L> {
    return released(this.reply.finish("ended"));
  }

  /** Committed tokens that no released text carried, in order. Call after `finish`. */
  rest(): readonly TextToken<L>[] {
    return this.reply.rest();
  }
}

function released<L>([piece]: readonly ReplyPiece<L>[]): ReleasedText<L> {
  return piece === undefined || piece.type === "call" ? { text: "", tokens: [] } : piece;
}
