/**
 * A call that the request demands (tool-calls.md §7). Where a grammar holds it the prompt says only what the template does
 * not: which tools there are, and how they are called. Where none does, the system text asks for a call, or, for a certain
 * tool, the assistant's turn begins with it.
 */
import { type CallFamily, callOpening, type LooseConversation, type RenderOptions } from "../../text/index.ts";
import { stringifyJson } from "../../text/json-numbers.ts";
import type { PromptSource, ToolPolicy } from "./request.ts";

export interface DemandedCall {
  readonly conversation: LooseConversation;
  readonly options: RenderOptions;
  /** What of the call stands at the prompt's end. */
  readonly begun: string;
}

type ChatSource = Extract<PromptSource, { kind: "chat" }>;

function notDemanded({ conversation }: Pick<ChatSource, "conversation">): DemandedCall {
  return { conversation, options: {}, begun: "" };
}

/** How a model calls that has no syntax of its own: as most models were trained to. */
export const COMMON_FAMILY: CallFamily = "hermes";
const COMMON_FORM = '<tool_call>\n{"name": "…", "arguments": {…}}\n</tool_call>';

export interface TemplateFacts {
  /** The model has a syntax of its own. */
  readonly knowsCalls: boolean;
  readonly rendersTools: boolean;
}

/** A call that a grammar holds: a model must still see what it is held to, or it calls with nonsense. */
export function heldCall(
  { conversation }: ChatSource,
  { choice, tools }: ToolPolicy,
  { knowsCalls, rendersTools }: TemplateFacts,
): DemandedCall {
  if (choice.kind === "auto" || tools.length === 0 || (knowsCalls && rendersTools))
    return notDemanded({ conversation });
  const lines: string[] = [];
  if (!rendersTools) lines.push("You may call these tools:", ...tools.map(toolText));
  if (!knowsCalls) lines.push("Call a tool in this form:", COMMON_FORM);
  const { tools: _shown, ...others } = conversation;
  return {
    conversation: withSystemLine(rendersTools ? conversation : others, lines.join("\n")),
    options: {},
    begun: "",
  };
}

function toolText({ name, description, parameters }: ToolPolicy["tools"][number]): string {
  return stringifyJson({ name, description, parameters });
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
