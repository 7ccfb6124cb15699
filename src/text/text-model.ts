/**
 * The text side of one loaded model: its tokenizer, its chat template and the pass from requests to ids. Pure and on the
 * main thread; it knows nothing of the engine.
 */
import { type CallFamily, callFamilyOfVocabulary } from "./chat/call-syntax.ts";
import { ChatTemplate, type RenderOptions } from "./chat/chat-template.ts";
import { type Conversation, mapConversationStrings } from "./chat/messages.ts";
import { DEFAULT_TAGS, type LooseConversation } from "./chat/normalize.ts";
import type { Detokenizer } from "./detokenizer/detokenizer.ts";
import { type EncodedPrompt, PromptEncoder } from "./prompt.ts";
import { PromptError } from "./prompt-error.ts";
import type { ReasoningForm } from "./reply/reply-parser.ts";
import { TextTokenizer } from "./tokenizer.ts";

/** Enough for an opening tag that is spelled in small tokens. */
const TAIL_IDS = 24;

export class TextModel {
  readonly tokenizer: TextTokenizer;
  /** Null: the model has no chat template and answers raw prompts only. */
  readonly template: ChatTemplate | null;
  readonly #encoder: PromptEncoder;

  /** @param tokenizer loaded with the template's text, so that the template's own markers are control tokens. */
  constructor(tokenizer: TextTokenizer, template: ChatTemplate | null) {
    this.tokenizer = tokenizer;
    this.template = template;
    this.#encoder = new PromptEncoder(tokenizer);
  }

  /**
   * Reads a model folder's tokenizer and template.
   * @throws TokenizerError, TemplateError for files that are missing or cannot be used.
   */
  static async load(dir: string): Promise<TextModel> {
    const template = await ChatTemplate.load(dir);
    const tokenizer = await TextTokenizer.load(dir, { templateText: template?.source ?? "" });
    return new TextModel(tokenizer, template);
  }

  /** Ids that end a generation, as the tokenizer's files and the families' known turn ends say. */
  get eosIds(): readonly number[] {
    return this.tokenizer.eosIds;
  }

  /** How this model writes calls, null if nobody knows. */
  get callFamily(): CallFamily | null {
    const ofTemplate = this.template?.traits.callFamily ?? null;
    return ofTemplate ?? callFamilyOfVocabulary((token) => this.tokenizer.tokenId(token) !== undefined);
  }

  /** How it writes thoughts. */
  get reasoningForm(): ReasoningForm {
    const traits = this.template?.traits;
    if (traits?.callFamily === "muse") return { kind: "channels" };
    return { kind: "tags", tags: traits?.thinkingTags ?? DEFAULT_TAGS };
  }

  /** Things about the model's files that are worth telling whoever loads it. */
  get warnings(): readonly string[] {
    return this.template?.warnings ?? [];
  }

  /**
   * Ids of a conversation as an API received it; a long one gives the thread away in between, and `signal` ends it.
   * @throws PromptError (for the client) without a template or for messages that it cannot carry safely; TemplateError
   * when the template refuses them.
   */
  async encodeChat(
    conversation: LooseConversation,
    options: RenderOptions = {},
    signal?: AbortSignal,
  ): Promise<EncodedPrompt> {
    const template = this.template;
    if (template === null) throw new PromptError("this model has no chat template");
    const guarded = {
      source: template.source,
      mapStrings: mapConversationStrings,
      render: (marked: Conversation) => template.render(marked, options),
    };
    return this.#encoder.encodeChatInSlices(guarded, template.normalize(conversation), signal);
  }

  /**
   * Ids of a raw prompt, text or ids.
   * @throws PromptError for an id outside the vocabulary.
   */
  encodeCompletion(prompt: string | readonly number[]): EncodedPrompt {
    return this.#encoder.encodeCompletion(prompt);
  }

  /** For the continuation of a prompt: the rules for a text's beginning do not apply. */
  detokenizer(): Detokenizer {
    return this.tokenizer.detokenizer({ atTextStart: false });
  }

  /** The text of the last ids of a prompt. */
  tail(ids: readonly number[]): string {
    const detokenizer = this.detokenizer();
    const text = ids.slice(-TAIL_IDS).map((id) => detokenizer.push(id));
    return text.join("") + detokenizer.flush();
  }

  /** The bytes of one token (`logprobs[].bytes`), also of half a character; empty for an id without text. */
  tokenBytes(id: number): Uint8Array {
    return this.tokenizer.tokenBytes(id);
  }
}
