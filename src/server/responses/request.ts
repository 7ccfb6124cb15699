/** `POST /v1/responses`: the body's schema and its way into the internal form (http-openai.md §6). */
import { type Static, Type as t } from "@sinclair/typebox";
import type { LooseMessage } from "../../text/chat/normalize.ts";
import { jsonSchemaWish } from "../dialect/format.ts";
import { thinkingOf } from "../dialect/thinking.ts";
import { toolSetup } from "../dialect/tools.ts";
import { invalidRequest } from "../errors.ts";
import type { FormatWish, GenerationRequest } from "../generation/request.ts";
import { sharedFields, sharedRequest, unsupported } from "../openai/fields.ts";
import { formatType, jsonSchemaFields } from "../openai/format.ts";
import { nullable } from "../openai/nullable.ts";
import { type ToolChoiceBody, toolChoice, toolChoiceSchema } from "../openai/tool-choice.ts";
import type { ServerOptions } from "../options.ts";
import { itemMessages, itemSchema } from "./items.ts";
import { type ResponseTool, responseToolSchema, responseTools } from "./tools.ts";

const { name, schema, strict, description } = jsonSchemaFields;
export const textFormatSchema = t.Object({
  type: formatType,
  name: nullable(name),
  schema: nullable(schema),
  strict,
  description,
});

const { model, stream, temperature, top_p } = sharedFields;

export const responseBodySchema = t.Object(
  {
    model,
    stream,
    temperature,
    top_p,
    input: t.Union([t.String(), t.Array(itemSchema)]),
    instructions: t.Optional(t.String({ description: "The first system message." })),
    tools: t.Optional(t.Array(responseToolSchema)),
    tool_choice: t.Optional(toolChoiceSchema),
    parallel_tool_calls: t.Optional(t.Boolean()),
    max_output_tokens: t.Optional(t.Integer({ minimum: 1, description: "Absent: the server's cap." })),
    reasoning: t.Optional(
      t.Object({
        effort: t.Optional(t.Unknown({ description: "none, minimal, low, medium, high, xhigh or max" })),
        summary: nullable(t.String({ description: "Any: the thoughts are told as a summary." })),
      }),
    ),
    text: t.Optional(t.Object({ format: nullable(textFormatSchema) })),
    previous_response_id: t.Optional(t.Unknown({ description: "Refused: no responses are kept." })),
    conversation: t.Optional(t.Unknown({ description: "Refused: no conversations are kept." })),
    prompt: t.Optional(t.Unknown({ description: "Refused: no prompts are kept." })),
    background: t.Optional(t.Boolean({ description: "Must not be true." })),
    top_logprobs: t.Optional(t.Integer({ minimum: 0, maximum: 0 })),
  },
  { additionalProperties: true },
);

export type ResponseBody = Static<typeof responseBodySchema>;

/** What of a request its response tells again. */
export interface ResponseEcho {
  /** null: the loaded model is shown. */
  readonly model: string | null;
  readonly instructions: string | null;
  readonly tools: ReadonlyMap<string, ResponseTool>;
  readonly toolChoice: ToolChoiceBody;
  readonly parallel: boolean;
  readonly maxOutputTokens: number | null;
  readonly effort: string | null;
  /** Not null: thoughts are told as a summary, too. */
  readonly summary: string | null;
  readonly textFormat: Static<typeof textFormatSchema>;
}

export interface ResponseRequest {
  readonly generation: GenerationRequest;
  readonly stream: boolean;
  readonly echo: ResponseEcho;
}

/** Body → internal form; throws 400 naming the field. */
export function responseRequest(
  body: ResponseBody,
  priority: 0 | 1,
  { maxTokensCap }: Pick<ServerOptions, "maxTokensCap">,
): ResponseRequest {
  refuseStored(body);
  const tools = responseTools(body.tools ?? []);
  const { rendered, policy } = toolSetup({
    tools: Array.from(tools.values(), ({ tool }) => tool),
    choice: toolChoice(body.tool_choice),
    parallel: body.parallel_tool_calls ?? true,
  });
  const { reasoning, kwargs } = thinkingOf({ effort: body.reasoning?.effort, effortParam: "reasoning.effort" });
  const { temperature, top_p } = body;
  const messages = conversation(body);
  return {
    stream: body.stream ?? false,
    generation: {
      ...sharedRequest({ ...(temperature !== undefined && { temperature }), ...(top_p !== undefined && { top_p }) }),
      prompt: { kind: "chat", conversation: { messages, kwargs, ...(rendered.length > 0 && { tools: rendered }) } },
      promptParam: "input",
      // Agents send no limit and expect the answer to end by itself: the default limit would cut it.
      maxTokens: body.max_output_tokens ?? maxTokensCap,
      topLogprobs: null,
      priority,
      toolPolicy: policy,
      reasoning,
      format: format(body),
      formatParam: "text.format",
    },
    echo: {
      model: body.model ?? null,
      instructions: body.instructions ?? null,
      tools,
      toolChoice: body.tool_choice ?? "auto",
      parallel: body.parallel_tool_calls ?? true,
      maxOutputTokens: body.max_output_tokens ?? null,
      // Any other has been refused.
      effort: typeof body.reasoning?.effort === "string" ? body.reasoning.effort : null,
      summary: body.reasoning?.summary ?? null,
      textFormat: body.text?.format ?? { type: "text" },
    },
  };
}

function refuseStored(body: ResponseBody): void {
  for (const field of ["previous_response_id", "conversation", "prompt"] as const) {
    if (body[field] === undefined) continue;
    throw invalidRequest(field, `'${field}' is not supported: this server keeps nothing; send the whole input`);
  }
  if (body.background === true) throw unsupported("background", "'background'");
}

function conversation({ input, instructions }: ResponseBody): LooseMessage[] {
  const head: LooseMessage[] = instructions === undefined ? [] : [{ role: "system", content: instructions }];
  const said: LooseMessage[] = typeof input === "string" ? [{ role: "user", content: input }] : itemMessages(input);
  if (input === "" || said.length === 0) throw invalidRequest("input", "'input' must be a non-empty string or list");
  return [...head, ...said];
}

function format({ text }: ResponseBody): FormatWish | null {
  const wanted = text?.format ?? { type: "text" as const };
  if (wanted.type === "text") return null;
  if (wanted.type === "json_object") return { kind: "json_object" };
  const at = "text.format";
  const { name, schema, strict } = wanted;
  if (name == null) throw invalidRequest(`${at}.name`, `'${at}.name' is required`);
  if (schema == null) throw invalidRequest(`${at}.schema`, `'${at}.schema' is required`);
  return jsonSchemaWish({ name, schema, strict }, at);
}
