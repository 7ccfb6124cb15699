/** `POST /v1/completions`: the body's schema and its way into the internal form (http-openai.md §5). */
import { type Static, Type as t } from "@sinclair/typebox";
import type { GenerationRequest, PromptSource } from "../generation/request.ts";
import { type Delivery, sharedFields, sharedRequest, unsupported } from "./fields.ts";

const tokenId = t.Integer({ minimum: 0 });

export const completionBodySchema = t.Object(
  {
    ...sharedFields,
    prompt: t.Union(
      [
        t.String(),
        t.Array(t.String(), { minItems: 1 }),
        t.Array(tokenId, { minItems: 1 }),
        t.Array(t.Array(tokenId, { minItems: 1 }), { minItems: 1 }),
      ],
      { "x-must-be": "a string, a list of strings, a list of token ids or a list of token id lists" },
    ),
    logprobs: t.Optional(t.Integer({ minimum: 0, maximum: 5 })),
    echo: t.Optional(t.Unknown()),
    suffix: t.Optional(t.Unknown()),
    best_of: t.Optional(t.Integer({ minimum: 1 })),
  },
  { additionalProperties: true },
);

export type CompletionBody = Static<typeof completionBodySchema>;

export interface CompletionRequest {
  readonly generation: GenerationRequest;
  readonly delivery: Delivery;
}

/** Body → internal form; throws 400 naming the field. */
export function completionRequest(body: CompletionBody, priority: 0 | 1): CompletionRequest {
  if (isTruthy(body.echo)) throw unsupported("echo", "'echo'");
  if (isTruthy(body.suffix)) throw unsupported("suffix", "'suffix'");
  if (body.best_of !== undefined && body.best_of > 1) throw unsupported("best_of", "'best_of' above 1");
  return {
    generation: {
      ...sharedRequest(body),
      prompt: promptSource(body.prompt),
      promptParam: "prompt",
      maxTokens: body.max_tokens,
      topLogprobs: body.logprobs ?? null,
      priority,
    },
    delivery: {
      model: body.model ?? null,
      stream: body.stream ?? false,
      includeUsage: body.stream_options?.include_usage ?? false,
      logprobs: body.logprobs !== undefined,
      returnTokenIds: body.return_token_ids ?? false,
    },
  };
}

/** As Python reads it: "", 0, false and null are "not asked for". */
function isTruthy(value: unknown): boolean {
  return Boolean(value);
}

function promptSource(prompt: CompletionBody["prompt"]): PromptSource {
  if (typeof prompt === "string") return { kind: "texts", texts: [prompt] };
  const texts = prompt.filter((item) => typeof item === "string");
  if (texts.length > 0) return { kind: "texts", texts };
  const lists = prompt.filter((item) => Array.isArray(item));
  if (lists.length > 0) return { kind: "ids", ids: lists };
  return { kind: "ids", ids: [prompt.filter((item) => typeof item === "number")] };
}
