/**
 * From a chat request to its prompt and to what the reply's text will mean (tool-calls.md §6, §7): thinking and effort
 * by request, template arguments and server default, in this order; where the thoughts begin, by the prompt's end.
 */
import { type CallFamily, endsOpen, type RenderOptions, type ReplyForm } from "../../text/index.ts";
import type { ServerOptions } from "../options.ts";
import { COMMON_FAMILY, demandCall, heldCall } from "./demanded-call.ts";
import type { GenerationRequest, PromptSource, ToolPolicy } from "./request.ts";
import type { TextSource } from "./text.ts";

export type ReplyDefaults = Pick<ServerOptions, "thinking" | "reasoningEffort" | "toolFormat">;

export interface ChatPrompt {
  readonly ids: readonly number[];
  readonly reply: ReplyForm;
}

type ChatSource = Extract<PromptSource, { kind: "chat" }>;

/** Rejects with `RequestError` 400 when the template refuses the messages. */
export async function chatPrompt(
  prompt: ChatSource,
  request: GenerationRequest,
  { text, options, signal }: { text: TextSource; options: ReplyDefaults; signal: AbortSignal },
): Promise<ChatPrompt> {
  const { toolPolicy, reasoning } = request;
  const family = replyFamily(text, options, toolPolicy);
  const isHeld = family !== null && text.grammarFacts !== null;
  const demanded = isHeld
    ? heldCall(prompt, toolPolicy, { knowsCalls: callFamily(text, options) !== null, rendersTools: text.rendersTools })
    : demandCall(prompt, toolPolicy, family);
  const render: RenderOptions = {
    ...thinkingOptions(request, prompt.conversation.kwargs ?? {}, options),
    ...(prompt.continueFinal === true && { continueFinal: true }),
    callFamily: family,
    ...demanded.options,
  };
  const ids = await text.encodeChat(demanded.conversation, signal, render);
  const form = reasoning.split ? text.reasoningForm : null;
  const isOpen = form?.kind === "tags" && endsOpen(text.tail(ids), form.tags);
  const start = isOpen ? "inside" : prompt.continueFinal === true || form === null ? "answer" : "outside";
  const { tools, choice } = toolPolicy;
  const onlyCalls = isHeld && choice.kind !== "auto" && tools.length > 0;
  return { ids, reply: { reasoning: form, start, family, tools, begun: demanded.begun, onlyCalls } };
}

/** How calls are written, null if they are not read. */
export function callFamily(
  text: Pick<TextSource, "toolFormat">,
  { toolFormat }: Pick<ReplyDefaults, "toolFormat">,
): CallFamily | null {
  return toolFormat === "none" ? null : (toolFormat ?? text.toolFormat);
}

/**
 * How the calls of one answer are written. A demanded call is held by a grammar, which any model can follow: one that has no
 * syntax of its own is given a common one.
 */
export function replyFamily(
  text: Pick<TextSource, "toolFormat" | "grammarFacts">,
  defaults: Pick<ReplyDefaults, "toolFormat">,
  { choice, tools }: ToolPolicy,
): CallFamily | null {
  const canBeHeld = text.grammarFacts !== null && defaults.toolFormat !== "none";
  const isDemanded = choice.kind !== "auto" && tools.length > 0;
  return callFamily(text, defaults) ?? (canBeHeld && isDemanded ? COMMON_FAMILY : null);
}

/** Whether thoughts are wanted, by whoever decides first; undefined: the template's own default. */
export function thinkingWanted(
  { prompt, reasoning }: GenerationRequest,
  { thinking }: Pick<ReplyDefaults, "thinking">,
): boolean | undefined {
  const given = prompt.kind === "chat" ? prompt.conversation.kwargs?.enable_thinking : undefined;
  return reasoning.thinking ?? (typeof given === "boolean" ? given : thinking);
}

/** What is passed to the template; what is left out is its own default, or stands in the template arguments. */
function thinkingOptions(
  { reasoning }: GenerationRequest,
  kwargs: Readonly<Record<string, unknown>>,
  defaults: ReplyDefaults,
): RenderOptions {
  const has = (name: string) => Object.hasOwn(kwargs, name);
  const thinking = reasoning.thinking ?? (has("enable_thinking") ? undefined : defaults.thinking);
  const effort = reasoning.effort ?? (has("reasoning_effort") ? undefined : defaults.reasoningEffort);
  return {
    ...(thinking !== undefined && { enableThinking: thinking }),
    ...(effort !== undefined && thinking !== false && { reasoningEffort: effort }),
  };
}
