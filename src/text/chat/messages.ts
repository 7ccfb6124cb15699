/**
 * The internal form of a conversation: what every API dialect is turned into and what a chat template renders.
 * Everything in it is the caller's text, except roles. Text is never null: an absent text is "".
 */
import { JsonNumber } from "../json-numbers.ts";
import { isEffortName } from "./effort.ts";

export interface SystemMessage {
  readonly role: "system";
  readonly content: string;
}

export interface UserMessage {
  readonly role: "user";
  readonly content: string;
  readonly name?: string;
}

export interface AssistantMessage {
  readonly role: "assistant";
  readonly content: string;
  /** Thoughts of this turn, without the family's tags. */
  readonly reasoning?: string;
  readonly toolCalls?: readonly ToolCall[];
  readonly name?: string;
}

/** The result of one call. */
export interface ToolMessage {
  readonly role: "tool";
  readonly content: string;
  /** Id of the call that it answers. */
  readonly toolCallId?: string;
  /** Name of the function that was called. */
  readonly name?: string;
}

export type Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage;

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** An object where the caller's JSON could be read (numbers as written: `JsonNumber`), else the text as it came. */
  readonly arguments: CallArguments | string;
}

/** A plain object or a `Map` (keys that look like array indices), values as `parseJsonKeepingNumbers` gives them. */
export type CallArguments = object;

/** A function that the model may call. `parameters` is a JSON schema, numbers preferably as `JsonNumber`. */
export interface ToolDefinition {
  readonly name: string;
  readonly description?: string;
  readonly parameters?: object;
}

/** All that a caller can put into a prompt. */
export interface Conversation {
  readonly messages: readonly Message[];
  /** Absent or empty: the template is not told of tools at all. */
  readonly tools?: readonly ToolDefinition[];
  /** `chat_template_kwargs`: plain variables of the template. */
  readonly kwargs?: Readonly<Record<string, unknown>>;
}

/**
 * The conversation with `f` applied to every string that the caller supplied: contents, reasoning, names, ids,
 * tool descriptions, schemas and arguments (keys and values), kwarg values (keys inside them too). Not applied to
 * roles, to names of kwargs, to a `reasoning_effort` of the known scale, nor to anything that the template or this program writes. Numbers stay as they are.
 */
export function mapConversationStrings(conversation: Conversation, f: (text: string) => string): Conversation {
  return {
    messages: conversation.messages.map((message) => mapMessage(message, f)),
    ...(conversation.tools && { tools: conversation.tools.map((tool) => mapTool(tool, f)) }),
    ...(conversation.kwargs && { kwargs: mapKwargs(conversation.kwargs, f) }),
  };
}

function mapMessage(message: Message, f: (text: string) => string): Message {
  const content = f(message.content);
  switch (message.role) {
    case "system":
      return { role: "system", content };
    case "user":
      return { role: "user", content, ...mapName(message, f) };
    case "assistant":
      return {
        role: "assistant",
        content,
        ...(message.reasoning !== undefined && { reasoning: f(message.reasoning) }),
        ...(message.toolCalls && { toolCalls: message.toolCalls.map((call) => mapCall(call, f)) }),
        ...mapName(message, f),
      };
    case "tool":
      return {
        role: "tool",
        content,
        ...(message.toolCallId !== undefined && { toolCallId: f(message.toolCallId) }),
        ...mapName(message, f),
      };
  }
}

function mapName(message: { readonly name?: string }, f: (text: string) => string): { readonly name?: string } {
  return message.name === undefined ? {} : { name: f(message.name) };
}

function mapCall(call: ToolCall, f: (text: string) => string): ToolCall {
  const { arguments: given } = call;
  return { id: f(call.id), name: f(call.name), arguments: typeof given === "string" ? f(given) : mapObject(given, f) };
}

function mapTool(tool: ToolDefinition, f: (text: string) => string): ToolDefinition {
  return {
    name: f(tool.name),
    ...(tool.description !== undefined && { description: f(tool.description) }),
    ...(tool.parameters && { parameters: mapObject(tool.parameters, f) }),
  };
}

function mapKwargs(kwargs: Readonly<Record<string, unknown>>, f: (text: string) => string) {
  const isConstant = (key: string, value: unknown) => key === "reasoning_effort" && isEffortName(value);
  return Object.fromEntries(
    Object.entries(kwargs).map(([key, value]) => [key, isConstant(key, value) ? value : mapJson(value, f)]),
  );
}

function mapObject(value: object, f: (text: string) => string): object {
  const mapped = mapJson(value, f);
  return typeof mapped === "object" && mapped !== null ? mapped : {};
}

/** `f` over all strings of a JSON-like value, keys included; the order of keys is kept. */
export function mapJson(value: unknown, f: (text: string) => string): unknown {
  if (typeof value === "string") return f(value);
  if (typeof value !== "object" || value === null || value instanceof JsonNumber) return value;
  if (Array.isArray(value)) return value.map((item) => mapJson(item, f));
  if (value instanceof Map) {
    return new Map(Array.from(value, ([key, item]) => [mapJson(key, f), mapJson(item, f)]));
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [f(key), mapJson(item, f)]));
}
