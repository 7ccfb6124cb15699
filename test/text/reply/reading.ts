/** Reads a reply in given pieces and folds its events, for the tests of this folder. */
import { expect } from "bun:test";
import type { ReplyEvent, TextEnd } from "../../../src/text/reply/events.ts";
import { type ReplyForm, ReplyParser } from "../../../src/text/reply/reply-parser.ts";

export interface Reading {
  readonly reasoning: string;
  readonly content: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  readonly endedInCall: boolean;
  readonly events: readonly ReplyEvent[];
}

export const THINK = { kind: "tags", tags: { open: "<think>", close: "</think>" } } as const;
export const CHANNEL = { kind: "tags", tags: { open: "<|channel>thought", close: "<channel|>" } } as const;

export function read(pieces: readonly string[], form: ReplyForm, end: TextEnd = "ended"): Reading {
  const parser = new ReplyParser(form);
  const events = [...pieces.flatMap((piece) => parser.push(piece)), ...parser.finish(end)];
  checkPlaces(form.begun + pieces.join(""), form.begun.length, events);
  const all = (type: "reasoning" | "text") => events.map((event) => (event.type === type ? event.text : "")).join("");
  return {
    reasoning: all("reasoning"),
    content: all("text"),
    calls: events.flatMap((event) => (event.type === "call" ? [event.call] : [])),
    endedInCall: parser.endedInCall,
    events,
  };
}

/** Every piece is a stretch of the text, in order and not empty. */
function checkPlaces(whole: string, begun: number, events: readonly ReplyEvent[]): void {
  let last = -begun;
  for (const event of events) {
    if (event.type === "call") {
      expect(event.end).toBeGreaterThanOrEqual(last);
      last = event.end;
      continue;
    }
    expect(event.text).not.toBe("");
    expect(event.start).toBeGreaterThanOrEqual(last);
    last = event.start + event.text.length;
    expect(whole.slice(event.start + begun, last + begun)).toBe(event.text);
  }
}

/** The same without events: what must not depend on how the text was cut. */
export function outcome({ reasoning, content, calls, endedInCall }: Reading) {
  return { reasoning, content, calls, endedInCall };
}

/** The text one UTF-16 unit, that is one step of the detokenizer at the least, at a time. */
export function characters(text: string): readonly string[] {
  return [...text];
}
