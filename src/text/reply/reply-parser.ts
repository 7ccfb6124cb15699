/**
 * What a model's text means: thoughts, answer, calls (tool-calls.md). Pure: pieces of text in, events out; the events
 * do not depend on how the text was cut. Never throws; time and memory are linear in the text.
 */
import type { CallFamily } from "../chat/call-syntax.ts";
import type { ToolDefinition } from "../chat/messages.ts";
import type { ThinkingTags } from "../chat/traits.ts";
import type { CallSyntax } from "./call-scanner.ts";
import { CallStream } from "./call-stream.ts";
import { gemma4Syntax } from "./calls/gemma4.ts";
import { lfm2Syntax } from "./calls/lfm2.ts";
import { minicpm5Syntax } from "./calls/minicpm5.ts";
import { museSyntax } from "./calls/muse.ts";
import { toolCallSyntax } from "./calls/tool-call.ts";
import { ChannelSplit } from "./channel-split.ts";
import type { ReplyEvent, TextEnd } from "./events.ts";
import type { Slice } from "./slice.ts";
import type { ReasoningSplit, SplitPiece } from "./split.ts";
import { type SplitStart, TagSplit } from "./tag-split.ts";

/** How thoughts are told from the answer: by tags, or by Muse's channels. */
export type ReasoningForm = { readonly kind: "tags"; readonly tags: ThinkingTags } | { readonly kind: "channels" };

export interface ReplyForm {
  /** Null: thoughts are not looked for. */
  readonly reasoning: ReasoningForm | null;
  /** Where the text begins, as the prompt's end says. */
  readonly start: SplitStart;
  /** Null: the family's calls cannot be read. */
  readonly family: CallFamily | null;
  /** Tools whose calls are read; empty: no text is a call. */
  readonly tools: readonly ToolDefinition[];
  /** The prompt's end that belongs to the reply: a call that was begun there. */
  readonly begun: string;
  /** The answer is known to hold nothing but calls. */
  readonly onlyCalls?: boolean;
}

/** Nothing is looked for: all text is answer. */
export const PLAIN_REPLY: ReplyForm = { reasoning: null, start: "answer", family: null, tools: [], begun: "" };

const SYNTAXES: Readonly<Record<CallFamily, CallSyntax>> = {
  hermes: toolCallSyntax,
  xml: toolCallSyntax,
  gemma4: gemma4Syntax,
  muse: museSyntax,
  minicpm5: minicpm5Syntax,
  lfm2: lfm2Syntax,
};

export class ReplyParser {
  private readonly split: ReasoningSplit | null;
  private readonly calls: CallStream | null;
  private place: number;

  constructor({ reasoning, start, family, tools, begun, onlyCalls = false }: ReplyForm) {
    this.split = splitOf(reasoning, start);
    const named = new Map(tools.map((tool) => [tool.name, tool]));
    this.calls = family === null || named.size === 0 ? null : new CallStream(SYNTAXES[family], named, onlyCalls);
    this.place = 0 - begun.length;
    this.push(begun);
  }

  /** Instead of `push`: whether the next piece, and all that follows, is text as it comes; false: nothing was taken. */
  passes(text: string): boolean {
    if (this.calls !== null || (this.split !== null && !this.split.passes(text))) return false;
    this.place += text.length;
    return true;
  }

  /** The text ended inside a call, which was dropped. */
  get endedInCall(): boolean {
    return this.calls?.endedInCall ?? false;
  }

  /** Takes the next piece of text. Places in the events count from the first piece on. */
  push(text: string): ReplyEvent[] {
    if (text === "") return [];
    const slice: Slice = { text, start: this.place };
    this.place += text.length;
    if (this.split === null) return this.answer(slice);
    return this.eventsOf(this.split.push(slice));
  }

  /** The text is over: what was held back. */
  finish(end: TextEnd): ReplyEvent[] {
    const events = this.eventsOf(this.split?.finish() ?? []);
    return [...events, ...(this.calls?.finish(end) ?? [])];
  }

  private eventsOf(pieces: readonly SplitPiece[]): ReplyEvent[] {
    const [only] = pieces;
    return pieces.length === 1 && only !== undefined
      ? this.events(only)
      : pieces.flatMap((piece) => this.events(piece));
  }

  private events(piece: SplitPiece): ReplyEvent[] {
    switch (piece.type) {
      case "reasoning":
        return [{ type: "reasoning", text: piece.text, start: piece.start }];
      case "answer":
        return this.answer(piece);
      case "border":
        return this.calls?.border() ?? [];
    }
  }

  private answer({ text, start }: Slice): ReplyEvent[] {
    return this.calls?.push({ text, start }) ?? [{ type: "text", text, start }];
  }
}

function splitOf(form: ReasoningForm | null, start: SplitStart): ReasoningSplit | null {
  if (form === null) return null;
  return form.kind === "channels" ? new ChannelSplit(start === "answer") : new TagSplit(form.tags, start);
}
