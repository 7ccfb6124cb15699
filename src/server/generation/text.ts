/**
 * What the server needs of a loaded model's text side. `src/text/` fulfils it for real models (`text-source.ts`);
 * tests put a small fake behind it.
 */
import type {
  CallFamily,
  GrammarFacts,
  IncrementalText,
  LooseConversation,
  ReasoningForm,
  RenderOptions,
} from "../../text/index.ts";

export interface TextSource {
  /**
   * Ids of a conversation; a long one gives the thread away in between, and `signal` ends it.
   * Rejects with `RequestError` (400) when the template refuses the messages or the model has none.
   */
  encodeChat(conversation: LooseConversation, signal: AbortSignal, options?: RenderOptions): Promise<readonly number[]>;
  /** A raw prompt; throws `RequestError` (400) for text that cannot be encoded. */
  encodeCompletion(prompt: string): readonly number[];
  /** For the continuation of a prompt: rules for a text's beginning do not apply. */
  detokenizer(): IncrementalText;
  /** True bytes of one token, also of half a character; empty for an id without text. */
  tokenBytes(id: number): Uint8Array;
  /** The text of the last ids of a prompt: whether it ends in an open thought, for instance. */
  tail(ids: readonly number[]): string;
  /** How the model writes calls, null if nobody knows. */
  readonly toolFormat: CallFamily | null;
  /** The template prints the tools that it is given. */
  readonly rendersTools: boolean;
  readonly reasoningForm: ReasoningForm;
  /** The template takes an effort. */
  readonly supportsReasoningEffort: boolean;
  /** The model thinks when nobody says anything. */
  readonly thinkingDefault: boolean;
  /** What grammars must know; null: the model has none. */
  readonly grammarFacts: GrammarFacts | null;
  /** Things about the model's text files that are worth telling whoever loads it. */
  readonly warnings: readonly string[];
  /** End-of-turn ids known from the tokenizer files; the model's own come with `ModelInfo`. */
  readonly eosIds: readonly number[];
}
