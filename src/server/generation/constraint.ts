/**
 * From a request to what the engine holds its text to (structured-output.md §1): the answer's format and the calls that may
 * or must be made. Whatever is wrong with a schema is told here, before anything is queued.
 */
import type { ConstraintSpec } from "../../engine/protocol.ts";
import {
  type CallFamily,
  GrammarError,
  type GrammarFacts,
  jsonTextOf,
  SchemaTooLarge,
  type ThoughtsPlace,
  textConstraint,
} from "../../text/index.ts";
import { invalidRequest, type RequestError } from "../errors.ts";
import type { GenerationRequest } from "./request.ts";

const SCHEMA_NAME = /^[\w-]{1,64}$/;

export interface ReplyFacts {
  /** How calls are written; null: nobody knows, then none are held to anything. */
  readonly family: CallFamily | null;
  /** undefined: the template's own default. */
  readonly thinking: boolean | undefined;
}

/**
 * The constraint of a prompt's rows; null: free text.
 * @param facts of the loaded model; null: it has no grammars
 * @throws RequestError 400 naming the field
 */
export function constraintOf(
  request: GenerationRequest,
  facts: GrammarFacts | null,
  promptIds: readonly number[],
  { family, thinking }: ReplyFacts,
): ConstraintSpec | null {
  const { format, formatParam, toolPolicy, ignoreEos } = request;
  const { choice, parallel, tools } = toolPolicy;
  if (format === null && tools.length === 0) return null;
  if (format?.kind === "json_schema" && !SCHEMA_NAME.test(format.name)) {
    throw invalidRequest(formatParam, "a schema's name must be 1 to 64 letters, digits, '_' or '-'");
  }
  const named = choice.kind === "named" ? choice.name : null;
  const callable = named === null ? tools : tools.filter(({ name }) => name === named);
  if (facts === null) {
    if (format === null) return null;
    throw invalidRequest(formatParam, `'${formatParam}' is not supported with this model`);
  }
  if (named !== null && callable.length === 0) {
    throw invalidRequest("tool_choice", `there is no tool '${named}'`);
  }
  try {
    const constraint = textConstraint({
      format,
      calls: family === null ? null : { family, tools: callable, required: choice.kind !== "auto", parallel },
      thoughts: thoughtsOf(request, facts, promptIds, thinking),
      controlId: (text) => facts.controlId(text),
    });
    if (constraint !== null && ignoreEos) {
      throw invalidRequest(
        "ignore_eos",
        "'ignore_eos' does not go with a format or a demanded call: its text has an end",
      );
    }
    return constraint;
  } catch (error) {
    throw error instanceof GrammarError ? refusal(error, request) : error;
  }
}

function thoughtsOf(
  { prompt }: GenerationRequest,
  facts: GrammarFacts,
  promptIds: readonly number[],
  thinking = true,
): ThoughtsPlace {
  if (prompt.kind !== "chat") return { kind: "none" };
  const place = facts.thoughts(promptIds, thinking && prompt.continueFinal !== true);
  // A turn that is continued is in its answer's channel.
  return place.kind === "channels" && prompt.continueFinal === true ? { kind: "none" } : place;
}

function refusal(error: GrammarError, { format, formatParam, toolPolicy }: GenerationRequest): RequestError {
  const isSchema = format?.kind === "json_schema" || (format === null && toolPolicy.tools.length > 0);
  const param = error.message.startsWith("tool ") || format === null ? "tools" : formatParam;
  const code = error instanceof SchemaTooLarge ? null : isSchema ? "invalid_json_schema" : "invalid_grammar";
  return invalidRequest(param, error.message, code);
}

/**
 * The request with its schema told to the model, too: a model that is only held to a schema writes valid nonsense. The
 * line stands behind the system messages at the head.
 */
export function withFormatLine(request: GenerationRequest): GenerationRequest {
  const { format, prompt } = request;
  if (format?.kind !== "json_schema" || prompt.kind !== "chat") return request;
  const content = `Answer with JSON that matches this schema: ${jsonTextOf(format.schema)}`;
  const { messages } = prompt.conversation;
  const head = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  const at = head < 0 ? messages.length : head;
  const conversation = { ...prompt.conversation, messages: messages.toSpliced(at, 0, { role: "system", content }) };
  return { ...request, prompt: { ...prompt, conversation } };
}
