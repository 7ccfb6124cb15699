/** What a template is given: messages and tools in OpenAI's shape, special tokens, and the request's switches. */
import type { SpecialTokens } from "../tokenizer-files.ts";
import type { Conversation, Message, ToolCall, ToolDefinition } from "./messages.ts";

/** Values that the template finds under names of its own. */
export type Variables = Readonly<Record<string, unknown>>;

export interface Switches {
  readonly addGenerationPrompt: boolean;
  readonly enableThinking: boolean | undefined;
  /** Variable and value of the effort, null if none is passed. */
  readonly effort: readonly [variable: string, value: string] | null;
}

/** `kwargs` first, so that nothing of a caller's can take the place of what the program passes. */
export function templateVariables(conversation: Conversation, tokens: SpecialTokens, switches: Switches): Variables {
  const { tools, kwargs } = conversation;
  return {
    ...kwargs,
    documents: undefined,
    ...(switches.enableThinking !== undefined && { enable_thinking: switches.enableThinking }),
    ...(switches.effort !== null && { [switches.effort[0]]: switches.effort[1] }),
    messages: conversation.messages.map(messageValue),
    tools: tools !== undefined && tools.length > 0 ? tools.map(toolValue) : undefined,
    add_generation_prompt: switches.addGenerationPrompt,
    bos_token: tokens.bos ?? "",
    eos_token: tokens.eos ?? "",
    pad_token: tokens.pad ?? "",
    unk_token: tokens.unk ?? "",
    additional_special_tokens: tokens.additional,
  };
}

function messageValue(message: Message): Variables {
  const { role, content } = message;
  switch (message.role) {
    case "system":
      return { role, content };
    case "user":
      return { role, content, name: message.name };
    case "assistant": {
      // Templates read the thoughts under one of two names.
      const reasoning = message.reasoning === "" ? undefined : message.reasoning;
      const calls = message.toolCalls ?? [];
      return {
        role,
        content,
        reasoning_content: reasoning,
        thinking: reasoning,
        tool_calls: calls.length > 0 ? calls.map(callValue) : undefined,
        name: message.name,
      };
    }
    case "tool":
      return { role, name: message.name, tool_call_id: message.toolCallId, content };
  }
}

function callValue(call: ToolCall): Variables {
  return { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } };
}

function toolValue(tool: ToolDefinition): Variables {
  const { name, description = "", parameters = { type: "object", properties: {} } } = tool;
  return { type: "function", function: { name, description, parameters } };
}
