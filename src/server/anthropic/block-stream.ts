/**
 * An answer's pieces as content blocks: one open at a time, numbered in order, opened by its first character that is
 * not white space, text as it came. Whole answers are the fold of the same steps, so both forms say the same.
 */
import { callId } from "../dialect/fresh-id.ts";
import type { ReadCall } from "../generation/events.ts";

export type BlockKind = "text" | "thinking";

export type BlockStep =
  | { readonly type: "start"; readonly index: number; readonly block: BlockKind | ToolUse }
  /** Never empty. */
  | { readonly type: "delta"; readonly index: number; readonly block: BlockKind | ToolUse; readonly text: string }
  | { readonly type: "stop"; readonly index: number; readonly block: BlockKind | ToolUse };

export interface ToolUse {
  readonly id: string;
  readonly name: string;
}

export class BlockStream {
  private open: BlockKind | null = null;
  /** Blocks begun so far. */
  private count = 0;
  /** White space of a block that is not open yet. */
  private held: { readonly kind: BlockKind; readonly text: string } | null = null;

  text(kind: BlockKind, text: string): BlockStep[] {
    if (this.open === kind) {
      this.held = null;
      return [this.step("delta", kind, text)];
    }
    const whole = this.held?.kind === kind ? this.held.text + text : text;
    if (whole.trim() === "") {
      this.held = { kind, text: whole };
      return [];
    }
    // Thoughts begin with their first word (tool-calls.md §3); an answer is told as it came.
    const first = kind === "thinking" ? whole.trimStart() : whole;
    return [...this.close(), ...this.begin(kind), this.step("delta", kind, first)];
  }

  call(call: ReadCall): BlockStep[] {
    const block: ToolUse = { id: callId("toolu_"), name: call.name };
    const closed = this.close();
    this.count += 1;
    return [...closed, this.step("start", block), this.step("delta", block, call.arguments), this.step("stop", block)];
  }

  /** The end: an answer has at least one block, if only an empty one. */
  finish(): BlockStep[] {
    if (this.count > 0) return this.close();
    const blank = this.held?.kind === "text" ? this.held.text : "";
    const begun = this.begin("text");
    const delta = blank === "" ? [] : [this.step("delta", "text", blank)];
    return [...begun, ...delta, ...this.close()];
  }

  private begin(kind: BlockKind): BlockStep[] {
    this.open = kind;
    this.held = null;
    this.count += 1;
    return [this.step("start", kind)];
  }

  private close(): BlockStep[] {
    this.held = null;
    if (this.open === null) return [];
    const closed = this.step("stop", this.open);
    this.open = null;
    return [closed];
  }

  private step(type: "start" | "stop", block: BlockKind | ToolUse): BlockStep;
  private step(type: "delta", block: BlockKind | ToolUse, text: string): BlockStep;
  private step(type: BlockStep["type"], block: BlockKind | ToolUse, text = ""): BlockStep {
    const index = this.count - 1;
    return type === "delta" ? { type, index, block, text } : { type, index, block };
  }
}
