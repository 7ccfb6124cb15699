/**
 * Which added tokens carry structure, so that a user's text must not be able to make them: the special ones, the
 * markers of reasoning and tool calls, and what the chat template itself writes. All other added tokens (runs of blanks,
 * `<h1>` …) are ordinary text.
 */
import { byteOfToken } from "./detokenizer/byte-fallback.ts";
import type { AddedToken, SpecialTokens } from "./tokenizer-files.ts";

/**
 * Markers that parsers of any model family look for; a vocabulary may list them without `special`.
 * Source: the families' public chat templates.
 */
const STRUCTURE: ReadonlySet<string> = new Set([
  ...["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
  ...["<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|tool>", "<tool|>", '<|"|>'],
  ...["<|channel>", "<channel|>", "<|think|>", "<|turn>", "<turn|>"],
  ...["<|tool_call_start|>", "<|tool_call_end|>", "<|tool_list_start|>", "<|tool_list_end|>"],
  ...["<|tool_response_start|>", "<|tool_response_end|>"],
  ...["<|start|>", "<|message|>", "<|eom|>", "<|eot|>", "<atem:function_calls>", "</atem:function_calls>"],
  ...["<function", "</function>", "<param", "</param>", "<tools>", "</tools>"],
]);

export interface ControlContext {
  readonly special: SpecialTokens;
  /** The unk token, when encoding can give it; null for vocabularies that spell every text. */
  readonly emittedUnk: string | null;
  /** Source of the chat template; "" if there is none. */
  readonly templateText: string;
}

/** The control tokens among `added`, in their order. */
export function controlTokens(added: readonly AddedToken[], context: ControlContext): AddedToken[] {
  const { special, emittedUnk, templateText } = context;
  const named = new Set([special.bos, special.eos, special.pad, ...special.additional]);
  return added.filter(({ content, special: isSpecial }) => {
    if (content === emittedUnk || byteOfToken(content) !== null || isOneCharacter(content)) return false;
    if (isSpecial || named.has(content) || STRUCTURE.has(content)) return true;
    return looksLikeMarkup(content) && templateText.includes(content);
  });
}

/**
 * A blank line, a word or a brace stands in every template without being structure there; taking such a token away from
 * users' texts would change how ordinary text is encoded.
 */
function looksLikeMarkup(content: string): boolean {
  return /[^\p{L}\p{N}\p{White_Space}▁]/u.test(content);
}

/** A token of one character is how that character is written, also by users; there is nothing inside it to break. */
function isOneCharacter(content: string): boolean {
  return content.length <= 2 && [...content].length === 1;
}
