/** The `Response` object (http-openai.md §6): every key that the SDK's types promise, null where there is nothing. */
import { type Static, Type as t } from "@sinclair/typebox";
import { hexId } from "../dialect/fresh-id.ts";
import type { RequestError } from "../errors.ts";
import type { ChoiceEndReason, ChoiceResult } from "../generation/events.ts";
import type { GenerationJob } from "../generation/job.ts";
import {
  type FinishedChoice,
  referenceSchema,
  reportBlock,
  reportSchema,
  type TokenUsage,
  usageOf,
} from "../generation/report.ts";
import { finishReason } from "../openai/answer.ts";
import { functionFields, toolChoiceSchema } from "../openai/tool-choice.ts";
import { count, oneOf, orNull } from "../openapi/schemas.ts";
import { type Item, itemSchema, outputItems } from "./output.ts";
import { type ResponseEcho, textFormatSchema } from "./request.ts";

const usageSchema = t.Object(
  {
    input_tokens: count,
    input_tokens_details: t.Object({ cached_tokens: count }),
    output_tokens: count,
    output_tokens_details: t.Object({ reasoning_tokens: count }),
    total_tokens: count,
  },
  { $id: "ResponseUsage" },
);

const { name, description, parameters } = functionFields;

export const responseSchema = t.Object(
  {
    id: t.String(),
    object: t.Literal("response"),
    created_at: t.Integer({ description: "Unix seconds." }),
    status: oneOf("in_progress", "completed", "incomplete", "failed"),
    error: orNull(t.Object({ code: t.Literal("server_error"), message: t.String() })),
    incomplete_details: orNull(t.Object({ reason: t.Literal("max_output_tokens") })),
    instructions: orNull(t.String()),
    metadata: t.Object({}),
    model: t.String(),
    output: t.Array(itemSchema),
    output_text: t.String({ description: "All text of its messages." }),
    parallel_tool_calls: t.Boolean(),
    temperature: orNull(t.Number()),
    tool_choice: toolChoiceSchema,
    tools: t.Array(t.Object({ type: t.Literal("function"), name, description, parameters, strict: t.Boolean() })),
    top_p: orNull(t.Number()),
    max_output_tokens: orNull(t.Integer()),
    previous_response_id: t.Null(),
    reasoning: t.Object({ effort: orNull(t.String()), summary: orNull(t.String()) }),
    text: t.Object({ format: textFormatSchema }),
    truncation: t.Literal("disabled"),
    access_programs: t.Null(),
    usage: orNull(usageSchema),
    x_mlx_dspark: t.Union([reportSchema, referenceSchema]),
  },
  { $id: "Response" },
);

type ResponseObject = Static<typeof responseSchema>;

export interface ResponseContext {
  readonly id: string;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly job: GenerationJob;
  readonly echo: ResponseEcho;
}

export function responseContext(job: GenerationJob, echo: ResponseEcho): ResponseContext {
  return { id: hexId("resp_"), createdAt: Math.floor(Date.now() / 1000), job, echo };
}

/** The whole answer. */
export function wholeResponse(context: ResponseContext, results: readonly ChoiceResult[]): ResponseObject {
  const [result] = results;
  if (result === undefined) throw new Error("an answer without a choice");
  const items = outputItems(result, context.echo);
  return finishedBody(context, { items, text: result.text }, result);
}

export interface Output {
  readonly items: readonly Item[];
  /** All text of its messages. */
  readonly text: string;
}

export type EndedChoice = FinishedChoice & { readonly reason: ChoiceEndReason };

/** Of an answer that came to its end; throws for one that was cut from outside. */
export function finishedBody(context: ResponseContext, output: Output, ended: EndedChoice) {
  const { job } = context;
  const usage = usageOf(job, [ended]);
  const isCut = finishReason(ended.reason) === "length";
  return responseBody(context, {
    status: isCut ? "incomplete" : "completed",
    incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
    output,
    usage: usageBody(usage),
    x_mlx_dspark: reportBlock(job.id, usage, [ended]),
  });
}

/** Of an answer that has only begun. */
export function openBody(context: ResponseContext) {
  return responseBody(context, {
    status: "in_progress",
    output: { items: [], text: "" },
    x_mlx_dspark: { req: context.job.id },
  });
}

export function failedBody(context: ResponseContext, output: Output, error: RequestError) {
  return responseBody(context, {
    status: "failed",
    error: { code: "server_error", message: error.message },
    output,
    x_mlx_dspark: { req: context.job.id },
  });
}

interface State
  extends Pick<ResponseObject, "status" | "x_mlx_dspark">,
    Partial<Pick<ResponseObject, "error" | "incomplete_details" | "usage">> {
  readonly output: Output;
}

function responseBody(context: ResponseContext, state: State): ResponseObject {
  const { echo, job } = context;
  const sampling = job.rows[0]?.request.sampling;
  return {
    id: context.id,
    object: "response",
    created_at: context.createdAt,
    status: state.status,
    error: state.error ?? null,
    incomplete_details: state.incomplete_details ?? null,
    instructions: echo.instructions,
    metadata: {},
    model: echo.model ?? job.model.id,
    output: [...state.output.items],
    output_text: state.output.text,
    parallel_tool_calls: echo.parallel,
    temperature: sampling?.temperature ?? null,
    tool_choice: echo.toolChoice,
    tools: Array.from(echo.tools.values(), ({ tool }) => ({ type: "function", parameters: null, ...tool })),
    top_p: sampling?.topP ?? null,
    max_output_tokens: echo.maxOutputTokens,
    previous_response_id: null,
    reasoning: { effort: echo.effort, summary: echo.summary },
    text: { format: echo.textFormat },
    truncation: "disabled",
    access_programs: null,
    usage: state.usage ?? null,
    x_mlx_dspark: state.x_mlx_dspark,
  };
}

function usageBody(usage: TokenUsage): Static<typeof usageSchema> {
  return {
    input_tokens: usage.promptTokens,
    input_tokens_details: { cached_tokens: usage.cachedTokens },
    output_tokens: usage.completionTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.promptTokens + usage.completionTokens,
  };
}
