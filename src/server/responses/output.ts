/** Output items of a response (http-openai.md §6), in the order in which the model wrote them. */
import { callId, hexId } from "../dialect/fresh-id.ts";
import type { ChoicePiece, ChoiceResult, ReadCall } from "../generation/events.ts";
import type { ResponseEcho } from "./request.ts";

export type ItemStatus = "in_progress" | "completed" | "incomplete";

export const newItemId = {
  reasoning: () => hexId("rs_"),
  message: () => hexId("msg_"),
  call: () => hexId("fc_"),
};

export function textPart(text: string) {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

export function summaryPart(text: string) {
  return { type: "summary_text", text };
}

/** @param summarized the thoughts are their own summary, for clients that asked for one. */
export function reasoningItem(id: string, text: string, summarized: boolean) {
  const shown = text.trim();
  return {
    type: "reasoning",
    id,
    summary: summarized ? [summaryPart(shown)] : [],
    content: [{ type: "reasoning_text", text: shown }],
  };
}

export function messageItem(id: string, text: string, status: ItemStatus) {
  return { type: "message", id, status, role: "assistant", content: [textPart(text)] };
}

export interface CallItem {
  readonly id: string;
  readonly callId: string;
  readonly name: string;
  readonly namespace: string | null;
  readonly arguments: string;
}

/** A fresh item for a call. */
export function newCallItem(call: ReadCall, { tools }: ResponseEcho): CallItem {
  return {
    id: newItemId.call(),
    callId: callId("call_"),
    name: call.name,
    namespace: tools.get(call.name)?.namespace ?? null,
    arguments: call.arguments,
  };
}

export function callItem(call: CallItem, status: ItemStatus) {
  const { id, name, namespace } = call;
  return {
    type: "function_call",
    id,
    call_id: call.callId,
    name,
    ...(namespace !== null && { namespace }),
    arguments: status === "in_progress" ? "" : call.arguments,
    status,
  };
}

/** All items of a finished answer. */
export function outputItems({ pieces, reason }: ChoiceResult, echo: ResponseEcho): object[] {
  return pieces.map((piece, index) => pieceItem(piece, endStatus(reason, index === pieces.length - 1), echo));
}

function pieceItem(piece: ChoicePiece, status: ItemStatus, echo: ResponseEcho): object {
  switch (piece.type) {
    case "reasoning":
      return reasoningItem(newItemId.reasoning(), piece.text, echo.summary !== null);
    case "text":
      return messageItem(newItemId.message(), piece.text, status);
    case "call":
      return callItem(newCallItem(piece.call, echo), "completed");
  }
}

/** Only a text that a limit cut is incomplete. */
export function endStatus(reason: ChoiceResult["reason"], isLast: boolean): ItemStatus {
  return reason === "length" && isLast ? "incomplete" : "completed";
}
