/** Text completions on the wire, unstreamed and streamed, from the same events (http-openai.md §5). */
import { type Static, Type as t } from "@sinclair/typebox";
import type { ChoiceEvent, ChoiceResult } from "../generation/events.ts";
import type { GenerationJob } from "../generation/job.ts";
import {
  choiceReport,
  type FinishedChoice,
  type Report,
  referenceSchema,
  reportBlock,
  reportSchema,
  usageOf,
} from "../generation/report.ts";
import { count, orNull } from "../openapi/schemas.ts";
import {
  type AnswerContext,
  finishReason,
  finishSchema,
  head,
  headFields,
  spansOf,
  spansSchema,
  tokenIds,
  usageBody,
  usageSchema,
} from "./answer.ts";
import { errorEventSchema } from "./envelope.ts";
import { completionLogprobs, completionLogprobsSchema } from "./logprobs.ts";

const choiceFields = {
  index: count,
  text: t.String(),
  logprobs: orNull(completionLogprobsSchema),
  prompt_token_ids: t.Optional(tokenIds),
  token_ids: t.Optional(tokenIds),
};

export const completionSchema = t.Object(
  {
    ...headFields(t.Literal("text_completion")),
    choices: t.Array(t.Object({ ...choiceFields, finish_reason: finishSchema })),
    usage: usageSchema,
    x_mlx_dspark: reportSchema,
  },
  { $id: "Completion" },
);

/** The first chunk has the request's id beside what others have. */
const spansAndReference = t.Object({ ...spansSchema.properties, ...referenceSchema.properties });

export const completionChunkSchema = t.Object(
  {
    ...headFields(t.Literal("text_completion")),
    choices: t.Array(t.Object({ ...choiceFields, finish_reason: orNull(finishSchema) })),
    usage: t.Optional(orNull(usageSchema)),
    x_mlx_dspark: t.Optional(t.Union([reportSchema, referenceSchema, spansSchema, spansAndReference])),
  },
  { $id: "CompletionChunk" },
);

/** Each object of a stream, whose last frame is `[DONE]`. */
export const completionEventSchema = t.Union([completionChunkSchema, errorEventSchema]);

type CompletionChunk = Static<typeof completionChunkSchema>;
type Told = Report | Static<typeof spansSchema> | null;

/** The whole answer. */
export function completionAnswer(
  context: AnswerContext,
  results: readonly ChoiceResult[],
): Static<typeof completionSchema> {
  const { job, delivery, text } = context;
  const usage = usageOf(job, results);
  return {
    ...head(
      context,
      "text_completion",
      results.map((result) => ({
        index: result.choice,
        text: result.text,
        logprobs: delivery.logprobs ? completionLogprobs(result.tokens, text) : null,
        finish_reason: finishReason(result.reason),
        ...(delivery.returnTokenIds && {
          prompt_token_ids: promptIdsOf(job, result.choice),
          token_ids: result.tokens.map((token) => token.id),
        }),
      })),
    ),
    usage: usageBody(usage),
    x_mlx_dspark: reportBlock(job.id, usage, results),
  };
}

/** Chunks of a streamed answer: text pieces, one empty piece with the finish reason, usage. */
export class CompletionChunks {
  private readonly finished: FinishedChoice[] = [];
  private readonly opened = new Set<number>();
  private first = true;

  constructor(private readonly context: AnswerContext) {}

  push(event: ChoiceEvent): CompletionChunk[] {
    if (event.type === "text") return [this.chunk(event, event.text, null, spansOf(event))];
    if (event.type !== "end") return [];
    this.finished.push(event);
    return [this.chunk(event, "", finishReason(event.reason), choiceReport(this.context.job, event))];
  }

  close(): CompletionChunk[] {
    if (!this.context.delivery.includeUsage) return [];
    const usage = usageBody(usageOf(this.context.job, this.finished));
    return [{ ...head(this.context, "text_completion", []), usage }];
  }

  private chunk(
    event: ChoiceEvent,
    text: string,
    finish: ReturnType<typeof finishReason> | null,
    told: Told,
  ): CompletionChunk {
    const { job, delivery, text: tokens } = this.context;
    const opening = !this.opened.has(event.choice);
    this.opened.add(event.choice);
    const shown = event.tokens.some((token) => token.visible);
    const choice = {
      index: event.choice,
      text,
      logprobs: delivery.logprobs && shown ? completionLogprobs(event.tokens, tokens) : null,
      finish_reason: finish,
      ...(delivery.returnTokenIds && opening && { prompt_token_ids: promptIdsOf(job, event.choice) }),
      ...(delivery.returnTokenIds && { token_ids: event.tokens.map((token) => token.id) }),
    };
    const reference = this.first ? { req: job.id } : null;
    this.first = false;
    return {
      ...head(this.context, "text_completion", [choice]),
      ...(delivery.includeUsage && { usage: null }),
      ...beside(reference, told),
    };
  }
}

/** The request's id, where it is told, beside the rest. */
function beside(reference: { readonly req: string } | null, told: Told): Pick<CompletionChunk, "x_mlx_dspark"> {
  if (told !== null) return { x_mlx_dspark: { ...reference, ...told } };
  return reference === null ? {} : { x_mlx_dspark: { ...reference } };
}

function promptIdsOf(job: GenerationJob, choice: number): number[] {
  const row = job.rows.find((r) => r.choices.includes(choice));
  return Array.from(row?.request.promptIds ?? []);
}
