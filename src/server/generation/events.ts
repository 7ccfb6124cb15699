/**
 * What happens to a choice, in order: any number of `text`, then exactly one `end`. Streamed and unstreamed answers
 * of every dialect are made from these and from nothing else.
 */
import type { RequestStats, TokenLogprob } from "../../engine/protocol.ts";
import type { TextToken } from "../../text/index.ts";

/** One committed token of a choice. */
export type ChoiceToken = TextToken<TokenLogprob>;

/** `cancelled`: by a lost client or a shutdown, not by a stop string. */
export type ChoiceEndReason = "stop" | "length" | "cancelled";

export type ChoiceEvent =
  /** Released text with the tokens that it is made of; never empty text. */
  | { readonly type: "text"; readonly choice: number; readonly text: string; readonly tokens: readonly ChoiceToken[] }
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
      readonly stats: RequestStats;
    };

/** A finished choice: the fold of its events. */
export interface ChoiceResult {
  readonly choice: number;
  readonly text: string;
  readonly tokens: readonly ChoiceToken[];
  readonly reason: ChoiceEndReason;
  readonly stopString: string | null;
  readonly completionTokens: number;
  readonly stats: RequestStats;
}

/** Folds events into results, ordered by choice. Events of an unfinished choice give no result. */
export class ChoiceCollector {
  private readonly texts = new Map<number, string[]>();
  private readonly tokens = new Map<number, ChoiceToken[]>();
  private readonly finished: ChoiceResult[] = [];

  push(event: ChoiceEvent): void {
    const texts = entry(this.texts, event.choice);
    const tokens = entry(this.tokens, event.choice);
    tokens.push(...event.tokens);
    if (event.type === "text") {
      texts.push(event.text);
      return;
    }
    const { choice, reason, stopString, completionTokens, stats } = event;
    this.finished.push({ choice, text: texts.join(""), tokens, reason, stopString, completionTokens, stats });
  }

  results(): ChoiceResult[] {
    return [...this.finished].sort((a, b) => a.choice - b.choice);
  }
}

function entry<T>(map: Map<number, T[]>, key: number): T[] {
  const found = map.get(key);
  if (found !== undefined) return found;
  const made: T[] = [];
  map.set(key, made);
  return made;
}
