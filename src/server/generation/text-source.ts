/** `src/text/`'s model as the server's `TextSource`: the errors that a client caused become 400s here. */
import { type EncodedPrompt, grammarFacts, PromptError, TemplateError, type TextModel } from "../../text/index.ts";
import { clientClosed, invalidRequest, withoutPaths } from "../errors.ts";
import type { TextSource } from "./text.ts";

/** @param log one line for whoever runs the server: what had to be done to carry a prompt safely. */
export function textSource(model: TextModel, log: (line: string) => void): TextSource {
  const idsOf = ({ ids, warnings }: EncodedPrompt) => {
    for (const warning of warnings) log(warning);
    return ids;
  };
  const rendersTools = model.template?.traits.supportsTools ?? false;
  let toldOfTools = false;
  return {
    eosIds: model.eosIds,
    warnings: model.warnings,
    toolFormat: model.callFamily,
    rendersTools,
    reasoningForm: model.reasoningForm,
    supportsReasoningEffort: (model.template?.traits.effort ?? null) !== null,
    thinkingDefault: model.template?.traits.thinkingDefault ?? false,
    grammarFacts: grammarFacts(model),
    encodeChat: async (conversation, signal, options = {}) => {
      if (!rendersTools && !toldOfTools && (conversation.tools ?? []).length > 0) {
        log("the model's chat template has no place for tools: they are left out of prompts unless a call is demanded");
        toldOfTools = true;
      }
      try {
        return idsOf(await model.encodeChat(conversation, options, signal));
      } catch (error) {
        if (signal.aborted) throw clientClosed();
        throw clientError(error, "messages");
      }
    },
    encodeCompletion: (prompt) => {
      try {
        return idsOf(model.encodeCompletion(prompt));
      } catch (error) {
        throw clientError(error, "prompt");
      }
    },
    detokenizer: () => model.detokenizer(),
    tail: (ids) => model.tail(ids),
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
