/**
 * Muse's channels (tool-calls.md §3): `[<|start|>]HEADER<|message|>BODY<|eom|>`. A header ends in `to=RECIPIENT`: what
 * the model says to itself is a thought, anything else the answer. Headers and what stands between channels are dropped.
 */
import { isBlank, LiteralSearch } from "./literal.ts";
import { HeldText, type Slice } from "./slice.ts";
import { pieces, type ReasoningSplit, type SplitPiece } from "./split.ts";

const START = "<|start|>";
const MESSAGE = "<|message|>";
const END = "<|eom|>";

/** Of a header only its end is read. */
const HEADER_TAIL = 256;

export class ChannelSplit implements ReasoningSplit {
  private state: "header" | "content" | "idle";
  private channel: "reasoning" | "answer" = "answer";
  private header = "";
  private thought = false;
  private readonly markers = [START, MESSAGE, END].map((text) => ({ text, search: new LiteralSearch(text) }));
  private readonly held = new HeldText();
  /** Characters of `held` that were looked at. */
  private seen = 0;

  /** @param inAnswer the prompt ends inside an answer that goes on. */
  constructor(inAnswer: boolean) {
    this.state = inAnswer ? "content" : "header";
  }

  /** Another channel may always begin. */
  passes(): boolean {
    return false;
  }

  push(slice: Slice): SplitPiece[] {
    const out: SplitPiece[] = [];
    this.held.append(slice);
    for (let i = 0; i < slice.text.length; i++) this.step(slice.text.charAt(i), out);
    this.release(Math.max(...this.markers.map(({ search }) => search.matched)), out);
    return out;
  }

  finish(): SplitPiece[] {
    const out: SplitPiece[] = [];
    this.release(0, out);
    return out;
  }

  private step(unit: string, out: SplitPiece[]): void {
    this.seen += 1;
    const found = this.markers.filter(({ search }) => search.step(unit)).at(0)?.text;
    if (found === undefined) return;
    this.release(found.length, out);
    this.held.take(found.length);
    this.seen = 0;
    for (const { search } of this.markers) search.reset();
    if (found === MESSAGE) this.open();
    else {
      if (this.state === "content" && this.channel === "answer") out.push({ type: "border" });
      this.state = found === START ? "header" : "idle";
      this.header = "";
    }
  }

  /** A message inside a message goes on in its channel; one without a header is an answer. */
  private open(): void {
    if (this.state === "content") return;
    const recipient = this.state === "header" ? /to=(\S+)\s*$/.exec(this.header)?.[1] : undefined;
    this.channel = recipient === "self" ? "reasoning" : "answer";
    this.state = "content";
  }

  /** Gives on what was looked at but the last `kept` characters. */
  private release(kept: number, out: SplitPiece[]): void {
    const length = this.seen - kept;
    if (length <= 0) return;
    this.seen = kept;
    const slices = this.held.take(length);
    if (this.state === "header") {
      this.header = (this.header + slices.map(({ text }) => text).join("")).slice(-HEADER_TAIL);
    }
    if (this.state !== "content") return;
    const shown = this.channel === "reasoning" && !this.thought ? withoutLeadingBlanks(slices) : slices;
    this.thought ||= this.channel === "reasoning" && shown.length > 0;
    out.push(...pieces(this.channel, shown));
  }
}

function withoutLeadingBlanks(slices: readonly Slice[]): Slice[] {
  const rest = [...slices];
  for (let slice = rest.shift(); slice !== undefined; slice = rest.shift()) {
    let at = 0;
    while (at < slice.text.length && isBlank(slice.text.charAt(at))) at++;
    if (at < slice.text.length) return [{ text: slice.text.slice(at), start: slice.start + at }, ...rest];
  }
  return [];
}
