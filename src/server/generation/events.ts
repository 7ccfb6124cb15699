/**
 * What happens to a choice, in order: any number of `reasoning`, `text` and `call`, then exactly one `end`. Streamed and
 * unstreamed answers of every dialect are made from these and from nothing else.
 */
import type { RequestStats, RoundInfo, TokenLogprob } from "../../engine/protocol.ts";
import type { TextToken } from "../../text/index.ts";
import type { Span } from "../../text/text-sources.ts";

/** One committed token of a choice. */
export type ChoiceToken = TextToken<TokenLogprob>;

/** `cancelled`: by a lost client or a shutdown, not by a stop string. `tool_calls`: a turn with at least one call. */
export type ChoiceEndReason = "stop" | "length" | "tool_calls" | "cancelled";

/** One whole call; a dialect gives it an id. */
export interface ReadCall {
  /** 0, 1, … within the choice. */
  readonly index: number;
  readonly name: string;
  /** Compact JSON text of an object. */
  readonly arguments: string;
}

/** Who proposed a token: a draft source whose proposal was accepted, or the target itself. */
export type TokenSource = Exclude<RoundInfo["source"], "plain"> | "target";

export type ChoiceEvent =
  /** Released text, or a piece of the thoughts, with the tokens that it is made of; never empty text. */
  | {
      readonly type: "text" | "reasoning";
      readonly choice: number;
      readonly text: string;
      readonly tokens: readonly ChoiceToken[];
      /** Where the text came from (`TokenSource`), if the request asked; UTF-16 lengths that sum up to the text's. */
      readonly spans?: readonly Span<string>[];
    }
  | { readonly type: "call"; readonly choice: number; readonly call: ReadCall; readonly tokens: readonly ChoiceToken[] }
  | {
      readonly type: "end";
      readonly choice: number;
      readonly reason: ChoiceEndReason;
      /** The stop string that ended the text, if one did. */
      readonly stopString: string | null;
      /** Committed tokens that no text event carried. */
      readonly tokens: readonly ChoiceToken[];
      /** Tokens of this choice, the one that completed a stop string and the EOS included. */
      readonly completionTokens: number;
      /** Those of them that were thoughts. */
      readonly reasoningTokens: number;
      readonly stats: RequestStats;
    };

/** A part of an answer; neighbours differ in type, except calls. */
export type ChoicePiece =
  | { readonly type: "reasoning" | "text"; readonly text: string }
  | { readonly type: "call"; readonly call: ReadCall };

/** A finished choice: the fold of its events. */
export interface ChoiceResult {
  readonly choice: number;
  /** All of the answer in the order in which it was written. */
  readonly pieces: readonly ChoicePiece[];
  readonly text: string;
  /** Trimmed at both ends. */
  readonly reasoning: string;
  readonly calls: readonly ReadCall[];
  readonly tokens: readonly ChoiceToken[];
  readonly reason: ChoiceEndReason;
  readonly stopString: string | null;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly stats: RequestStats;
}

/** Folds events into results, ordered by choice. Events of an unfinished choice give no result. */
export class ChoiceCollector {
  private readonly texts = new Map<number, string[]>();
  private readonly thoughts = new Map<number, string[]>();
  private readonly calls = new Map<number, ReadCall[]>();
  private readonly pieces = new Map<number, ChoicePiece[]>();
  private readonly tokens = new Map<number, ChoiceToken[]>();
  private readonly finished: ChoiceResult[] = [];

  push(event: ChoiceEvent): void {
    const { choice } = event;
    const tokens = entry(this.tokens, choice);
    tokens.push(...event.tokens);
    switch (event.type) {
      case "text":
        entry(this.texts, choice).push(event.text);
        appendText(entry(this.pieces, choice), event.type, event.text);
        return;
      case "reasoning":
        entry(this.thoughts, choice).push(event.text);
        appendText(entry(this.pieces, choice), event.type, event.text);
        return;
      case "call":
        entry(this.calls, choice).push(event.call);
        entry(this.pieces, choice).push({ type: "call", call: event.call });
        return;
      case "end": {
        const { reason, stopString, completionTokens, reasoningTokens, stats } = event;
        const text = entry(this.texts, choice).join("");
        const reasoning = entry(this.thoughts, choice).join("").trim();
        const calls = entry(this.calls, choice);
        const pieces = entry(this.pieces, choice);
        const counts = { completionTokens, reasoningTokens };
        this.finished.push({ choice, pieces, text, reasoning, calls, tokens, reason, stopString, ...counts, stats });
      }
    }
  }

  results(): ChoiceResult[] {
    return [...this.finished].sort((a, b) => a.choice - b.choice);
  }
}

function appendText(pieces: ChoicePiece[], type: "reasoning" | "text", text: string): void {
  const last = pieces.at(-1);
  if (last?.type === type) pieces[pieces.length - 1] = { type, text: last.text + text };
  else pieces.push({ type, text });
}

function entry<T>(map: Map<number, T[]>, key: number): T[] {
  const found = map.get(key);
  if (found !== undefined) return found;
  const made: T[] = [];
  map.set(key, made);
  return made;
}
