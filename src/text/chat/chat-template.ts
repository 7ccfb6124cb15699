/**
 * A model's chat template: found in its folder, compiled and probed once, then a pure function from a conversation to
 * the prompt's text. The conversation is normalised before (`normalize.ts`) and guarded outside.
 */
import { TemplateError } from "../jinja/errors.ts";
import { compileTemplate, type Template } from "../jinja/template.ts";
import { type SpecialTokens, specialTokensOf } from "../tokenizer-files.ts";
import { adaptMessages } from "./adapt.ts";
import { type CallFamily, callOpening } from "./call-syntax.ts";
import { effortOf, nearestEffort } from "./effort.ts";
import { type Conversation, type Message, mapConversationStrings } from "./messages.ts";
import { type LooseConversation, normalizeConversation } from "./normalize.ts";
import { chooseTemplate, readJsonObject, readTemplateTexts } from "./template-source.ts";
import { type Switches, templateVariables } from "./template-variables.ts";
import { endsOpen, type Probe, probeTraits, type TemplateTraits } from "./traits.ts";

export interface RenderOptions {
  /** Ends the prompt where the assistant's turn begins; true if absent. Ignored with `continueFinal`. */
  readonly addGenerationPrompt?: boolean;
  /** Absent: `enable_thinking` of the kwargs, else the template's own default. */
  readonly enableThinking?: boolean;
  /** Any name of the scale; mapped to what the template accepts. Absent: `reasoning_effort` of the kwargs. */
  readonly reasoningEffort?: string;
  /** The last message is an assistant's that the model continues: the prompt ends right behind its content. */
  readonly continueFinal?: boolean;
  /** Syntax of calls where the template does not render them; absent: the template's own family. */
  readonly callFamily?: CallFamily | null;
  /** The assistant's turn begins with a call of this tool (its place in the conversation's tools), in `callFamily`. */
  readonly openCallOf?: number;
}

export class ChatTemplate {
  readonly traits: TemplateTraits;
  /** All template texts of the model. */
  readonly source: string;
  readonly #templates: ReadonlyMap<string, Template>;
  readonly #tokens: SpecialTokens;
  readonly #now: () => Date;

  /**
   * @param texts template texts by name, the main one called `default`
   * @throws TemplateError for a template that cannot be read
   */
  constructor(texts: ReadonlyMap<string, string>, tokens: SpecialTokens, now: () => Date = () => new Date()) {
    this.source = Array.from(texts.values()).join("\n");
    this.#templates = new Map(Array.from(texts, ([name, text]) => [name, compileTemplate(text)]));
    this.#tokens = tokens;
    this.#now = now;
    this.traits = probeTraits(this.source, this.#probe);
  }

  /** The template of a model folder, null if it has none. Throws `TemplateError` for one that cannot be read. */
  static async load(dir: string): Promise<ChatTemplate | null> {
    const texts = await readTemplateTexts(dir);
    if (texts === null) return null;
    const config = (await readJsonObject(dir, "tokenizer_config.json")) ?? {};
    const specialTokensMap = (await readJsonObject(dir, "special_tokens_map.json")) ?? {};
    const tokens = specialTokensOf({ tokenizer: {}, config, specialTokensMap, generationConfig: {} });
    return new ChatTemplate(texts.named, tokens);
  }

  /** Things about the template that are worth telling whoever loads the model. */
  get warnings(): readonly string[] {
    return this.traits.usesTimeOfDay
      ? ["the chat template prints the time of day: no prompt will be found in the prefix cache"]
      : [];
  }

  /** What an API received → what `render` takes. */
  normalize(conversation: LooseConversation): Conversation {
    return normalizeConversation(conversation, this.traits);
  }

  /** The conversation with `f` applied to every string of the caller's. */
  mapStrings(conversation: Conversation, f: (text: string) => string): Conversation {
    return mapConversationStrings(conversation, f);
  }

  /** The prompt. Throws `TemplateError` when the template refuses the conversation. */
  render(conversation: Conversation, options: RenderOptions = {}): string {
    const { callFamily = this.traits.callFamily } = options;
    const adapted = { ...conversation, messages: adaptMessages(conversation.messages, this.traits, callFamily) };
    const switches = this.#switches(conversation, options);
    if (options.continueFinal === true) return this.#renderUpToContent(adapted, switches);
    const text = this.#renderPlain(adapted, switches);
    if (!switches.addGenerationPrompt) return text;
    const tool = options.openCallOf === undefined ? undefined : conversation.tools?.[options.openCallOf];
    const call = tool === undefined || callFamily === null ? "" : callOpening(callFamily, tool.name);
    return this.#closeThinking(text, switches) + call;
  }

  #switches(conversation: Conversation, options: RenderOptions): Switches {
    const { enable_thinking: thinkingKwarg, reasoning_effort: effortKwarg } = conversation.kwargs ?? {};
    const wanted = options.reasoningEffort ?? (typeof effortKwarg === "string" ? effortKwarg : undefined);
    const effort = wanted === undefined ? null : effortOf(wanted);
    const fromKwargs = typeof thinkingKwarg === "boolean" ? thinkingKwarg : undefined;
    const enableThinking = options.enableThinking ?? fromKwargs ?? (effort === "none" ? false : undefined);
    const { effort: accepted } = this.traits;
    const value = effort === null || effort === "none" || !accepted ? null : nearestEffort(effort, accepted.values);
    return {
      addGenerationPrompt: options.addGenerationPrompt ?? true,
      enableThinking,
      effort: value === null || !accepted ? null : [accepted.variable, value],
    };
  }

  #renderPlain(conversation: Conversation, switches: Switches, now: () => Date = this.#now): string {
    const template = chooseTemplate(this.#templates, (conversation.tools ?? []).length > 0);
    return template.render(templateVariables(conversation, this.#tokens, switches), { now });
  }

  /** Templates that prefill an opener whatever they are told get the closer behind it. */
  #closeThinking(text: string, switches: Switches): string {
    const tags = this.traits.thinkingTags;
    if (switches.enableThinking !== false || tags === null || !endsOpen(text, tags)) return text;
    return `${text}${tags.close}\n\n`;
  }

  /** Renders the last message with a sentinel behind its content and cuts there, so no end of turn follows. */
  #renderUpToContent(conversation: Conversation, switches: Switches): string {
    const final = conversation.messages.at(-1);
    if (final?.role !== "assistant") throw new TemplateError("only an assistant message can be continued");
    const sentinel = freeSentinel(final.content);
    const marked: Message = { ...final, content: final.content + sentinel };
    const messages = [...conversation.messages.slice(0, -1), marked];
    const text = this.#renderPlain({ ...conversation, messages }, { ...switches, addGenerationPrompt: false });
    const end = text.lastIndexOf(sentinel);
    if (end < 0) throw new TemplateError("the chat template does not print the assistant message to be continued");
    return text.slice(0, end);
  }

  #probe: Probe = (messages, options = {}) => {
    const conversation: Conversation = {
      messages,
      ...(options.tools !== undefined && { tools: options.tools }),
      ...(options.variables !== undefined && { kwargs: options.variables }),
    };
    const { addGenerationPrompt = false, now } = options;
    const switches: Switches = { addGenerationPrompt, enableThinking: undefined, effort: null };
    try {
      return this.#renderPlain(conversation, switches, now === undefined ? this.#now : () => now);
    } catch (error) {
      if (error instanceof TemplateError) return null;
      throw error;
    }
  };
}

/** A string that the content does not hold; letters of a private plane, which no filter trims or changes. */
function freeSentinel(content: string): string {
  let sentinel = "\u{f5e17}";
  while (content.includes(sentinel)) sentinel += "\u{f5e17}";
  return sentinel;
}
