/**
 * What an API received → one form that every template can be given (text.md §4): roles, where system text goes,
 * contents as text, arguments as objects, thoughts apart from the answer, names on results, neighbours joined.
 */
import { JsonNumber, parseJsonKeepingNumbers, stringifyJson } from "../json-numbers.ts";
import type { CallArguments, Conversation, Message, ToolCall, ToolDefinition } from "./messages.ts";
import { joinCallsToText, joinNeighbours } from "./neighbours.ts";
import { placeSystemMessages } from "./system-messages.ts";
import type { TemplateTraits, ThinkingTags } from "./traits.ts";

export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

/** A message as a dialect reads it. Everything that `Message` allows, and what APIs allow besides. */
export interface LooseMessage {
  readonly role: Message["role"] | "developer";
  /** Text, parts of text, or (of a tool) any JSON object. */
  readonly content?: string | null | readonly (TextPart | string)[] | object;
  readonly reasoning?: string | null;
  readonly toolCalls?: readonly LooseToolCall[] | null;
  readonly toolCallId?: string | null;
  readonly name?: string | null;
}

export interface LooseToolCall {
  readonly id?: string | null;
  readonly name: string;
  /** JSON text as clients send it, or the value itself. */
  readonly arguments?: string | object | null;
}

export interface LooseConversation {
  readonly messages: readonly LooseMessage[];
  readonly tools?: readonly ToolDefinition[];
  readonly kwargs?: Readonly<Record<string, unknown>>;
}

/** Of models whose template names none. */
export const DEFAULT_TAGS: ThinkingTags = { open: "<think>", close: "</think>" };

/** The conversation in the internal form, as this template needs it. */
export function normalizeConversation(given: LooseConversation, traits: TemplateTraits): Conversation {
  const plain = given.messages.map((message, index) => plainMessage(message, index, traits));
  const named = nameResults(placeSystemMessages(plain));
  const joined = joinCallsToText(named);
  return {
    messages: traits.acceptsNeighbours ? joined : joinNeighbours(joined),
    ...(given.tools !== undefined && given.tools.length > 0 && { tools: given.tools }),
    ...(given.kwargs !== undefined && { kwargs: given.kwargs }),
  };
}

function plainMessage(message: LooseMessage, index: number, traits: TemplateTraits): Message {
  const content = contentText(message.content);
  const name = typeof message.name === "string" && { name: message.name };
  switch (message.role) {
    case "system":
    case "developer":
      return { role: "system", content };
    case "user":
      return { role: "user", content, ...name };
    case "tool":
      return {
        role: "tool",
        content,
        ...(typeof message.toolCallId === "string" && { toolCallId: message.toolCallId }),
        ...name,
      };
    case "assistant": {
      const { thoughts, answer } = splitThoughts(content, traits.thinkingTags ?? DEFAULT_TAGS);
      const reasoning = joinThoughts(message.reasoning ?? "", thoughts);
      const calls = (message.toolCalls ?? []).map((call, at) => plainCall(call, at, traits));
      return {
        role: "assistant",
        content: answer,
        ...(reasoning !== "" && { reasoning }),
        ...(calls.length > 0 && { toolCalls: calls }),
        ...name,
      };
    }
    default:
      throw new TypeError(`message ${index} has an unknown role`);
  }
}

/** Text parts joined by newlines; an absent text is ""; any other object as compact JSON. */
function contentText(content: LooseMessage["content"]): string {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return "";
  if (Array.isArray(content) && content.every(isTextPart)) {
    return content.map((part) => (typeof part === "string" ? part : part.text)).join("\n");
  }
  return stringifyJson(content);
}

function isTextPart(part: unknown): part is TextPart | string {
  if (typeof part === "string") return true;
  return typeof part === "object" && part !== null && "text" in part && typeof part.text === "string";
}

/**
 * Thoughts inside an assistant's content, as clients without a field for them send them back: a block at the start,
 * or a closer whose opener the prompt had prefilled.
 */
export function splitThoughts(content: string, tags: ThinkingTags): { thoughts: string; answer: string } {
  const end = content.indexOf(tags.close);
  if (end < 0) return { thoughts: "", answer: content };
  const before = content.slice(0, end);
  const hasOpener = before.includes(tags.open);
  if (hasOpener && !before.trimStart().startsWith(tags.open)) return { thoughts: "", answer: content };
  const inside = hasOpener ? before.slice(before.lastIndexOf(tags.open) + tags.open.length) : before;
  return {
    thoughts: inside.replace(/^\n+|\n+$/g, ""),
    answer: content.slice(end + tags.close.length).replace(/^\n+/, ""),
  };
}

function joinThoughts(given: string, found: string): string {
  if (given === "" || given === found) return found;
  return found === "" ? given : `${given}\n\n${found}`;
}

function plainCall(call: LooseToolCall, index: number, traits: TemplateTraits): ToolCall {
  const given = plainArguments(call.arguments ?? "");
  const id = typeof call.id === "string" && call.id !== "" ? call.id : `call_${index}`;
  const mustWrap = typeof given === "string" && traits.needsArgumentObject;
  return { id, name: call.name, arguments: mustWrap ? { arguments: given } : given };
}

/** JSON text of an object → the object; text that cannot be read without loss stays as it is. */
function plainArguments(given: string | object): CallArguments | string {
  if (typeof given !== "string") return given;
  if (given.trim() === "") return {};
  try {
    const value = parseJsonKeepingNumbers(given, { duplicateKeys: "error" });
    return isObject(value) && isExact(value) ? value : given;
  } catch (error) {
    if (error instanceof SyntaxError) return given;
    throw error;
  }
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof JsonNumber);
}

/** Whether every integer in the value is one that a double holds. */
function isExact(value: unknown): boolean {
  if (value instanceof JsonNumber) return value.isSafe;
  if (typeof value !== "object" || value === null) return true;
  return (value instanceof Map ? Array.from(value.values()) : Object.values(value)).every(isExact);
}

/** Results get the name of the call that they answer. */
function nameResults(messages: readonly Message[]): Message[] {
  const names = new Map<string, string>();
  return messages.map((message) => {
    if (message.role === "assistant") for (const call of message.toolCalls ?? []) names.set(call.id, call.name);
    if (message.role !== "tool" || message.name !== undefined || message.toolCallId === undefined) return message;
    const name = names.get(message.toolCallId);
    return name === undefined ? message : { ...message, name };
  });
}
