/** Joining turns of one role that follow each other. */
import type { AssistantMessage, Message } from "./messages.ts";

/** Texts joined by a blank line; empty ones leave none. */
export function joinTexts(...texts: readonly string[]): string {
  return texts.filter((text) => text !== "").join("\n\n");
}

/** Neighbouring user turns and neighbouring assistant turns become one each. Tool results stay apart. */
export function joinNeighbours(messages: readonly Message[]): Message[] {
  return mergeWhere(messages, () => true);
}

/** Text of an assistant and the calls that follow it become one turn, whatever the template accepts. */
export function joinCallsToText(messages: readonly Message[]): Message[] {
  return mergeWhere(
    messages,
    (left, right) =>
      left.role === "assistant" &&
      right.role === "assistant" &&
      left.toolCalls === undefined &&
      right.toolCalls !== undefined &&
      right.content === "",
  );
}

function mergeWhere(messages: readonly Message[], mayMerge: (left: Message, right: Message) => boolean): Message[] {
  const merged: Message[] = [];
  for (const message of messages) {
    const previous = merged.at(-1);
    const both = previous !== undefined && mayMerge(previous, message) ? merge(previous, message) : null;
    if (both === null) merged.push(message);
    else merged[merged.length - 1] = both;
  }
  return merged;
}

function merge(left: Message, right: Message): Message | null {
  if (left.role === "user" && right.role === "user") {
    return { ...left, content: joinTexts(left.content, right.content) };
  }
  if (left.role === "assistant" && right.role === "assistant") return mergeAssistants(left, right);
  return null;
}

function mergeAssistants(left: AssistantMessage, right: AssistantMessage): AssistantMessage {
  const reasoning = joinTexts(left.reasoning ?? "", right.reasoning ?? "");
  const toolCalls = [...(left.toolCalls ?? []), ...(right.toolCalls ?? [])];
  return {
    role: "assistant",
    content: joinTexts(left.content, right.content),
    ...(reasoning !== "" && { reasoning }),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(left.name !== undefined && { name: left.name }),
  };
}
