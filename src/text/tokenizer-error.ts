/** A tokenizer folder that cannot be used, or text and ids that do not fit the tokenizer; the message says which. */
export class TokenizerError extends Error {
  override readonly name = "TokenizerError";
}
