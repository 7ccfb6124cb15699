/** `src/text/`'s model as the server's `TextSource`: the errors that a client caused become 400s here. */
import { TemplateError } from "../../text/jinja/errors.ts";
import { PromptError } from "../../text/prompt-error.ts";
import type { TextModel } from "../../text/text-model.ts";
import { clientClosed, invalidRequest, withoutPaths } from "../errors.ts";
import type { TextSource } from "./text.ts";

export function textSource(model: TextModel): TextSource {
  return {
    eosIds: model.eosIds,
    encodeChat: async (conversation, signal) => {
      try {
        return (await model.encodeChat(conversation, signal)).ids;
      } catch (error) {
        if (signal.aborted) throw clientClosed();
        throw clientError(error, "messages");
      }
    },
    encodeCompletion: (prompt) => {
      try {
        return model.encodeCompletion(prompt).ids;
      } catch (error) {
        throw clientError(error, "prompt");
      }
    },
    detokenizer: () => model.detokenizer(),
    tokenBytes: (id) => model.tokenBytes(id),
  };
}

function clientError(error: unknown, param: string): unknown {
  if (error instanceof PromptError) return invalidRequest(param, error.message);
  if (error instanceof TemplateError) {
    return invalidRequest(param, `could not apply chat template: ${withoutPaths(error.message)}`);
  }
  return error;
}
