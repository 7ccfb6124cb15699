/** What a reply is made of, in order. */
import type { ToolDefinition } from "../chat/messages.ts";
import type { Slice } from "./slice.ts";

/** A call as it was read. */
export interface ParsedCall {
  readonly name: string;
  /** Compact JSON text of an object. */
  readonly arguments: string;
}

export type ReplyEvent =
  | ({ readonly type: "reasoning" } & Slice)
  | ({ readonly type: "text" } & Slice)
  /** `end`: place in the raw output behind the call. */
  | { readonly type: "call"; readonly call: ParsedCall; readonly end: number };

/** Why no more text comes. `cut`: by a limit or from outside, in the middle of whatever was being written. */
export type TextEnd = "ended" | "cut";

/** The tools whose calls are read, by name. */
export type CallableTools = ReadonlyMap<string, ToolDefinition>;
