/** Output items of a response (http-openai.md §6), in the order in which the model wrote them. */
import { type Static, Type as t } from "@sinclair/typebox";
import { callId, hexId } from "../dialect/fresh-id.ts";
import type { ChoicePiece, ChoiceResult, ReadCall } from "../generation/events.ts";
import { oneOf } from "../openapi/schemas.ts";
import type { ResponseEcho } from "./request.ts";

const statusSchema = oneOf("in_progress", "completed", "incomplete");
export type ItemStatus = Static<typeof statusSchema>;

export const textPartSchema = t.Object(
  {
    type: t.Literal("output_text"),
    text: t.String(),
    annotations: t.Array(t.Unknown(), { maxItems: 0 }),
    logprobs: t.Array(t.Unknown(), { maxItems: 0 }),
  },
  { $id: "ResponseText" },
);

export const summaryPartSchema = t.Object(
  { type: t.Literal("summary_text"), text: t.String() },
  { $id: "ResponseSummary" },
);

const reasoningItemSchema = t.Object(
  {
    type: t.Literal("reasoning"),
    id: t.String(),
    summary: t.Array(summaryPartSchema),
    content: t.Array(t.Object({ type: t.Literal("reasoning_text"), text: t.String() })),
  },
  { $id: "ResponseReasoning" },
);

const messageItemSchema = t.Object(
  {
    type: t.Literal("message"),
    id: t.String(),
    status: statusSchema,
    role: t.Literal("assistant"),
    content: t.Array(textPartSchema),
  },
  { $id: "ResponseMessage" },
);

const callItemSchema = t.Object(
  {
    type: t.Literal("function_call"),
    id: t.String(),
    call_id: t.String(),
    name: t.String(),
    namespace: t.Optional(t.String()),
    arguments: t.String({ description: "JSON text of an object; empty while the call is in progress." }),
    status: statusSchema,
  },
  { $id: "ResponseCall" },
);

export const itemSchema = t.Union([reasoningItemSchema, messageItemSchema, callItemSchema]);
export type Item = Static<typeof itemSchema>;

export const newItemId = {
  reasoning: () => hexId("rs_"),
  message: () => hexId("msg_"),
  call: () => hexId("fc_"),
};

export function textPart(text: string): Static<typeof textPartSchema> {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

export function summaryPart(text: string): Static<typeof summaryPartSchema> {
  return { type: "summary_text", text };
}

/** @param summarized the thoughts are their own summary, for clients that asked for one. */
export function reasoningItem(id: string, text: string, summarized: boolean): Static<typeof reasoningItemSchema> {
  const shown = text.trim();
  return {
    type: "reasoning",
    id,
    summary: summarized ? [summaryPart(shown)] : [],
    content: [{ type: "reasoning_text", text: shown }],
  };
}

export function messageItem(id: string, text: string, status: ItemStatus): Static<typeof messageItemSchema> {
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

export function callItem(call: CallItem, status: ItemStatus): Static<typeof callItemSchema> {
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
export function outputItems({ pieces, reason }: ChoiceResult, echo: ResponseEcho): Item[] {
  return pieces.map((piece, index) => pieceItem(piece, endStatus(reason, index === pieces.length - 1), echo));
}

function pieceItem(piece: ChoicePiece, status: ItemStatus, echo: ResponseEcho): Item {
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
