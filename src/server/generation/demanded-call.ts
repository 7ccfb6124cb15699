/**
 * A call that the request demands, for families whose calls no grammar holds (tool-calls.md §7): the system text says
 * so, or, for a certain tool, the assistant's turn begins with the call.
 */
import { type CallFamily, callOpening, type LooseConversation, type RenderOptions } from "../../text/index.ts";
import type { PromptSource, ToolPolicy } from "./request.ts";

export interface DemandedCall {
  readonly conversation: LooseConversation;
  readonly options: RenderOptions;
  /** What of the call stands at the prompt's end. */
  readonly begun: string;
}

type ChatSource = Extract<PromptSource, { kind: "chat" }>;

export function notDemanded({ conversation }: Pick<ChatSource, "conversation">): DemandedCall {
  return { conversation, options: {}, begun: "" };
}

export function demandCall(
  { conversation, continueFinal }: ChatSource,
  { choice, tools }: ToolPolicy,
  family: CallFamily | null,
): DemandedCall {
  if (choice.kind === "auto" || tools.length === 0) return notDemanded({ conversation });
  const named = choice.kind === "named" ? choice.name : null;
  const openCallOf = conversation.tools?.findIndex((tool) => tool.name === named) ?? -1;
  if (named !== null && family !== null && openCallOf >= 0 && continueFinal !== true) {
    // Thoughts would have to come before the call, so there are none.
    return { conversation, options: { openCallOf, enableThinking: false }, begun: callOpening(family, named) };
  }
  const line = named === null ? "You must call one of the tools." : `You must call the tool ${named}.`;
  return { conversation: withSystemLine(conversation, line), options: {}, begun: "" };
}

/** Behind the system messages at the head, which are joined later. */
function withSystemLine(conversation: LooseConversation, content: string): LooseConversation {
  const { messages } = conversation;
  const isSystem = (role: string) => role === "system" || role === "developer";
  const head = messages.findIndex(({ role }) => !isSystem(role));
  const at = head < 0 ? messages.length : head;
  return { ...conversation, messages: messages.toSpliced(at, 0, { role: "system", content }) };
}
