/** A prompt that cannot be made into ids safely; the message is for the client (400). */
export class PromptError extends Error {
  override readonly name = "PromptError";
}
