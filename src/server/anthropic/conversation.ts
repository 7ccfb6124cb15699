/**
 * Messages → the conversation that a template renders (http-anthropic.md §2). Pure, and every earlier turn comes out
 * the same however the request goes on, so that the prefix cache finds it again.
 */

import { joinNeighbours } from "../../text/chat/neighbours.ts";
import { placeSystemMessages } from "../../text/chat/system-messages.ts";
import type { Conversation, Message, ToolCall, ToolDefinition } from "../../text/index.ts";
import { deeperThan, NESTING_MAX } from "../dialect/depth.ts";
import { clip } from "../dialect/words.ts";
import { invalidRequest } from "../errors.ts";
import type { PromptSource } from "../generation/request.ts";
import { blocksOf, looseBlocks, textOf, unreadable } from "./content.ts";
import type { Block, Content, MessagesBody, Turn } from "./schema.ts";

/** Claude Code's first system block; its fingerprint changes with the first user text of a session. */
const BILLING_HEADER = "x-anthropic-billing-header:";

export interface ConversationOptions {
  readonly keepBillingHeader: boolean;
}

/** With messages in the strict form. */
export interface ChatPrompt extends Extract<PromptSource, { kind: "chat" }> {
  readonly conversation: Conversation;
}

/** The prompt of a body; throws 400 naming a turn that cannot be carried. */
export function conversationOf(
  body: Pick<MessagesBody, "system" | "messages">,
  tools: readonly ToolDefinition[],
  options: ConversationOptions,
): ChatPrompt {
  const head = systemText(body.system, options);
  const turns = body.messages.flatMap((turn, index) => turnMessages(turn, `messages[${index}]`));
  refuseUnreadable(body.messages);
  const given: Message[] = head === "" ? turns : [{ role: "system", content: head }, ...turns];
  const messages = joinNeighbours(placeSystemMessages(given));
  const last = messages.at(-1);
  const continueFinal = last?.role === "assistant" && last.toolCalls === undefined;
  // An answer that begins with nothing is a new one.
  const isEmpty = continueFinal && last.content === "" && last.reasoning === undefined;
  return {
    kind: "chat",
    conversation: { messages: isEmpty ? messages.slice(0, -1) : messages, ...(tools.length > 0 && { tools }) },
    ...(continueFinal && !isEmpty && { continueFinal }),
  };
}

/** Blocks joined by newlines, without the line that would keep two sessions from sharing a prefix. */
export function systemText(system: Content | undefined, options: ConversationOptions): string {
  const blocks = blocksOf(system);
  return textOf(options.keepBillingHeader ? blocks : blocks.map(withoutBilling), "system");
}

function withoutBilling(block: Block): Block {
  if (typeof block.text !== "string" || !block.text.startsWith(BILLING_HEADER)) return block;
  const end = block.text.indexOf("\n");
  return { ...block, text: end < 0 ? "" : block.text.slice(end + 1) };
}

function turnMessages(turn: Turn, at: string): Message[] {
  const blocks = blocksOf(turn.content);
  switch (turn.role) {
    case "system":
    case "developer": {
      const content = textOf(blocks, `${at}.content`);
      return content === "" ? [] : [{ role: "system", content }];
    }
    case "user":
      return userMessages(blocks, `${at}.content`);
    case "assistant":
      return [assistantMessage(blocks, `${at}.content`)];
    default:
      throw invalidRequest(`${at}.role`, `unknown role '${clip(turn.role)}'; expected user, assistant or system`);
  }
}

/** Results come before the turn's text; a turn of nothing but results has no text of its own. */
function userMessages(blocks: readonly Block[], at: string): Message[] {
  const results = blocks.flatMap((block, index): Message[] =>
    block.type === "tool_result" ? [toolMessage(block, `${at}[${index}]`)] : [],
  );
  const content = textOf(blocks, at);
  return results.length > 0 && content === "" ? results : [...results, { role: "user", content }];
}

function toolMessage(block: Block, at: string): Message {
  const text = textOf(looseBlocks(block.content), `${at}.content`);
  const toolCallId = typeof block.tool_use_id === "string" && { toolCallId: block.tool_use_id };
  return { role: "tool", content: block.is_error === true ? `Error: ${text}` : text, ...toolCallId };
}

function assistantMessage(blocks: readonly Block[], at: string): Message {
  const reasoning = blocks
    .map((block) => (block.type === "thinking" && typeof block.thinking === "string" ? block.thinking : ""))
    .filter((thoughts) => thoughts !== "")
    .join("\n\n");
  const toolCalls = blocks.flatMap((block, index) =>
    block.type === "tool_use" ? [toolCall(block, index, `${at}[${index}]`)] : [],
  );
  return {
    role: "assistant",
    content: textOf(blocks, at),
    ...(reasoning !== "" && { reasoning }),
    ...(toolCalls.length > 0 && { toolCalls }),
  };
}

function toolCall({ id, name, input }: Block, index: number, at: string): ToolCall {
  if (typeof name !== "string" || name === "") throw invalidRequest(`${at}.name`, `'${at}.name' must be a string`);
  if (deeperThan(input, NESTING_MAX)) {
    throw invalidRequest(`${at}.input`, `'${at}.input' is nested deeper than ${NESTING_MAX} levels`);
  }
  const given = typeof input === "string" || (typeof input === "object" && input !== null) ? input : {};
  return { id: typeof id === "string" ? id : `toolu_${index}`, name, arguments: given };
}

function refuseUnreadable(turns: readonly Turn[]): void {
  const index = turns.findLastIndex(({ role }) => role === "user");
  const at = `messages[${index}].content`;
  const why = unreadable(blocksOf(turns[index]?.content), at);
  if (why !== null) throw invalidRequest(at, why);
}
