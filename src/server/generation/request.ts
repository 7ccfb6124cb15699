/**
 * The internal form of a generation request, the same for every dialect: a dialect turns its body into this and
 * nothing below it knows which dialect it was. `undefined` means "not given: use the default".
 */
import type { LooseConversation, ToolDefinition } from "../../text/index.ts";

export type PromptSource =
  | {
      readonly kind: "chat";
      /** Tools are rendered from here, whatever may be called of them. */
      readonly conversation: LooseConversation;
      /** The last message is an assistant's turn that the answer continues: no generation prompt, no end of turn. */
      readonly continueFinal?: boolean;
    }
  | { readonly kind: "texts"; readonly texts: readonly string[] }
  | { readonly kind: "ids"; readonly ids: readonly (readonly number[])[] };

/** What of the tools may, must or must not be called (tool-calls.md §7). */
export interface ToolPolicy {
  /** Tools whose calls are read from the text; empty: all text is text. */
  readonly tools: readonly CallableTool[];
  readonly choice:
    | { readonly kind: "auto" }
    /** A call of any of `tools` is a must. */
    | { readonly kind: "required" }
    | { readonly kind: "named"; readonly name: string };
  /** False: the answer ends with its first call. */
  readonly parallel: boolean;
}

export interface CallableTool extends ToolDefinition {
  /** Arguments must follow the schema. */
  readonly strict: boolean;
}

export const NO_TOOLS: ToolPolicy = { tools: [], choice: { kind: "auto" }, parallel: true };

/** How the model is asked to think (tool-calls.md §6). */
export interface ReasoningWish {
  /** undefined: the server's default, else the template's. */
  readonly thinking: boolean | undefined;
  /** undefined: the server's default, else the template's. Mapped to what the template knows. */
  readonly effort: "low" | "medium" | "high" | "xhigh" | undefined;
  /** Thoughts are told apart from the answer; raw completions have none. */
  readonly split: boolean;
}

export const NO_REASONING: ReasoningWish = { thinking: undefined, effort: undefined, split: false };

/** What the text of the answer must be an instance of (structured-output.md §1). */
export type FormatWish =
  | { readonly kind: "json_object" }
  | { readonly kind: "json_schema"; readonly name: string; readonly schema: unknown; readonly strict: boolean }
  | { readonly kind: "grammar"; readonly ebnf: string }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "choice"; readonly choices: readonly string[] };

export interface GenerationRequest {
  readonly prompt: PromptSource;
  /** Body field that holds the prompt, for error messages. */
  readonly promptParam: string;
  readonly maxTokens: number | undefined;
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly topK: number | undefined;
  readonly minP: number | undefined;
  readonly presencePenalty: number | undefined;
  readonly frequencyPenalty: number | undefined;
  readonly repetitionPenalty: number | undefined;
  readonly logitBias: readonly (readonly [number, number])[];
  readonly seed: number | undefined;
  readonly stops: readonly string[];
  /** Choices per prompt. */
  readonly n: number;
  readonly ignoreEos: boolean;
  /** Alternatives reported with every token; null: no log-probabilities. */
  readonly topLogprobs: number | null;
  /** 0 interactive, 1 background. */
  readonly priority: 0 | 1;
  readonly toolPolicy: ToolPolicy;
  readonly reasoning: ReasoningWish;
  /** null: free text. */
  readonly format: FormatWish | null;
  /** Body field of the format, for error messages (`response_format`, `text.format`, `output_config.format`…). */
  readonly formatParam: string;
  /** Pieces of text say which of their tokens were drafted, and by whom; absent: they do not. */
  readonly tellSources?: boolean;
}
