/** What the rooms above use of the text side of a model. */
export { type CallFamily, callOpening } from "./chat/call-syntax.ts";
export { ChatTemplate, type RenderOptions } from "./chat/chat-template.ts";
export type { Effort } from "./chat/effort.ts";
export type { Conversation, Message, ToolCall, ToolDefinition } from "./chat/messages.ts";
export type { LooseConversation, LooseMessage } from "./chat/normalize.ts";
export { endsOpen, type TemplateTraits } from "./chat/traits.ts";
export { ChoiceText, type ReleasedText } from "./choice-text.ts";
export { Detokenizer } from "./detokenizer/detokenizer.ts";
export { TemplateError } from "./jinja/errors.ts";
export type { EncodedPrompt } from "./prompt.ts";
export { PromptError } from "./prompt-error.ts";
export { PLAIN_REPLY, type ReasoningForm, type ReplyForm } from "./reply/reply-parser.ts";
export { type IncrementalText, type ReplyPiece, ReplyText, type TextToken } from "./reply-text.ts";
export { StopMatcher, type StopResult } from "./stop-strings.ts";
export { TextModel } from "./text-model.ts";
export { TextTokenizer } from "./tokenizer.ts";
export { TokenizerError } from "./tokenizer-error.ts";
