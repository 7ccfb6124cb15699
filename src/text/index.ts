/** What the rooms above use of the text side of a model. */
export { ChatTemplate, type RenderOptions } from "./chat/chat-template.ts";
export type { Conversation, Message, ToolCall, ToolDefinition } from "./chat/messages.ts";
export type { LooseConversation, LooseMessage } from "./chat/normalize.ts";
export type { TemplateTraits } from "./chat/traits.ts";
export { ChoiceText, type IncrementalText, type ReleasedText, type TextToken } from "./choice-text.ts";
export { Detokenizer } from "./detokenizer/detokenizer.ts";
export { type GrammarFormat, type ThoughtsPlace, textConstraint } from "./grammar/constraint.ts";
export { GrammarError, SchemaTooLarge } from "./grammar/errors.ts";
export { type GrammarFacts, grammarFacts } from "./grammar/facts.ts";
export { jsonTextOf } from "./grammar/json-tree.ts";
export { TemplateError } from "./jinja/errors.ts";
export type { EncodedPrompt } from "./prompt.ts";
export { PromptError } from "./prompt-error.ts";
export { StopMatcher, type StopResult } from "./stop-strings.ts";
export { TextModel } from "./text-model.ts";
export { TextTokenizer } from "./tokenizer.ts";
export { TokenizerError } from "./tokenizer-error.ts";
