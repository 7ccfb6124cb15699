/**
 * Thoughts between an opening and a closing tag at the head of a reply (tool-calls.md §3). Invariant: thoughts and
 * answer joined are the text without the tags and without the white space around them; a tag inside the answer is text.
 * Blocks that follow each other before any answer are thoughts all of them.
 */
import type { ThinkingTags } from "../chat/traits.ts";
import { isBlank, LiteralChoice, LiteralSearch } from "./literal.ts";
import { HeldText, type Slice } from "./slice.ts";
import { pieces, type ReasoningSplit, type SplitPiece } from "./split.ts";

/** `outside`: a block may begin; `inside`: the prompt has opened one; `answer`: the reply goes on with an answer. */
export type SplitStart = "outside" | "inside" | "answer";

export class TagSplit implements ReasoningSplit {
  /**
   * before, between: a block may begin, before the first or after one; opening: it has begun, and white space or a
   * second opener may stand there; inside; answer.
   */
  private state: "before" | "between" | "opening" | "inside" | "answer";
  private readonly opener: LiteralChoice<string>;
  private readonly closer: LiteralSearch;
  private readonly held = new HeldText();
  /** Characters of `held` that were looked at. */
  private seen = 0;
  /** Blanks at the head of `held`, before and between blocks and in an opening one. */
  private blanks = 0;
  private thought = false;
  /** The opener may come a second time: some models repeat the one that the prompt ended with. */
  private mayRepeat = true;

  constructor(
    private readonly tags: ThinkingTags,
    start: SplitStart,
  ) {
    this.state = start === "outside" ? "before" : start === "inside" ? "opening" : "answer";
    this.opener = new LiteralChoice([tags.open]);
    this.closer = new LiteralSearch(tags.close);
  }

  private get isOver(): boolean {
    return this.state === "answer";
  }

  passes(text: string): boolean {
    const first = text.charAt(0);
    const begins = this.state === "before" && this.held.length === 0 && first !== "";
    if (begins && !isBlank(first) && first !== this.tags.open.charAt(0)) this.state = "answer";
    return this.isOver;
  }

  push(slice: Slice): SplitPiece[] {
    if (this.isOver) return pieces("answer", [slice]);
    const out: SplitPiece[] = [];
    this.held.append(slice);
    for (let i = 0; i < slice.text.length && !this.isOver; i++) this.step(slice.text.charAt(i), out);
    if (this.state === "inside") this.give("reasoning", this.seen - this.closer.matched, out);
    if (this.isOver) this.give("answer", this.held.length, out);
    return out;
  }

  finish(): SplitPiece[] {
    const out: SplitPiece[] = [];
    // Blanks count as answer only where nothing else was.
    if (this.state !== "before") this.drop(this.blanks);
    const isThought = this.state === "inside" || this.state === "opening";
    this.give(isThought ? "reasoning" : "answer", this.held.length, out);
    return out;
  }

  private step(unit: string, out: SplitPiece[]): void {
    this.seen += 1;
    switch (this.state) {
      case "before":
      case "between":
        this.lookForBlock(unit, out);
        return;
      case "opening":
        this.lookForThought(unit);
        return;
      case "inside":
        if (!this.closer.step(unit)) return;
        this.give("reasoning", this.seen - this.tags.close.length, out);
        this.drop(this.tags.close.length);
        this.state = "between";
    }
  }

  private lookForBlock(unit: string, out: SplitPiece[]): void {
    if (this.opener.matched === 0 && isBlank(unit)) {
      this.blanks += 1;
      return;
    }
    const found = this.opener.step(unit);
    if (found === null) return;
    if (found !== undefined) {
      // Blanks between two blocks keep their texts apart.
      if (this.thought) this.give("reasoning", this.blanks, out);
      this.drop(this.seen);
      this.state = "opening";
    } else {
      if (this.state === "between") this.drop(this.blanks);
      this.state = "answer";
    }
    this.blanks = 0;
  }

  private lookForThought(unit: string): void {
    const begun = this.opener.matched;
    if (begun === 0 && isBlank(unit)) {
      this.blanks += 1;
      return;
    }
    const found = this.mayRepeat ? this.opener.step(unit) : undefined;
    if (found === null) return;
    if (found !== undefined) {
      this.mayRepeat = false;
      this.drop(this.seen);
    } else {
      this.drop(this.blanks);
      this.state = "inside";
      for (const other of this.tags.open.slice(0, begun) + unit) this.closer.step(other);
    }
    this.blanks = 0;
  }

  private give(type: "reasoning" | "answer", length: number, out: SplitPiece[]): void {
    if (length <= 0) return;
    if (type === "reasoning") this.thought = true;
    this.seen -= Math.min(length, this.seen);
    out.push(...pieces(type, this.held.take(length)));
  }

  private drop(length: number): void {
    this.seen -= length;
    this.held.take(length);
  }
}
