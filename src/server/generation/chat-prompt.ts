/**
 * From a chat request to its prompt and to what the reply's text will mean (tool-calls.md §6, §7): thinking and effort
 * by request, template arguments and server default, in this order; where the thoughts begin, by the prompt's end.
 */
import { type CallFamily, endsOpen, type RenderOptions, type ReplyForm } from "../../text/index.ts";
import type { ServerOptions } from "../options.ts";
import { demandCall, notDemanded } from "./demanded-call.ts";
import type { GenerationRequest, PromptSource } from "./request.ts";
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
  const family = callFamily(text, options);
  const { toolPolicy, reasoning } = request;
  // Where a grammar holds the call, the prompt need not ask for it.
  const isHeld = family !== null && text.grammarFacts !== null;
  const demanded = isHeld ? notDemanded(prompt) : demandCall(prompt, toolPolicy, family);
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
  return { ids, reply: { reasoning: form, start, family, tools: toolPolicy.tools, begun: demanded.begun } };
}

/** How calls are written, null if they are not read. */
export function callFamily(text: TextSource, { toolFormat }: ReplyDefaults): CallFamily | null {
  return toolFormat === "none" ? null : (toolFormat ?? text.toolFormat);
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
