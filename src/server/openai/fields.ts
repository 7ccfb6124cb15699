/**
 * Request fields that chat and text completions share, typed once: validation, TypeScript types and the OpenAPI page
 * come from these schemas. Unknown fields are allowed and ignored (http-openai.md §1). The schemas are TypeBox's own:
 * Elysia's `t.Integer` also takes integers written as strings, which this API does not.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import { clip } from "../dialect/words.ts";
import { invalidRequest } from "../errors.ts";
import { type GenerationRequest, NO_REASONING, NO_TOOLS } from "../generation/request.ts";
import { formatFields, formatOf } from "./format.ts";
import { nullable } from "./nullable.ts";

/** Longest list of stop strings; OpenAI documents 4, more are accepted (http-openai.md §2). */
const STOPS_MAX = 16;

export const sharedFields = {
  model: t.Optional(t.String({ description: "Echoed; the loaded model answers whatever it says." })),
  stream: t.Optional(t.Boolean()),
  stream_options: t.Optional(
    t.Object({
      include_usage: nullable(t.Boolean()),
      include_speculation: nullable(t.Boolean({ description: "Chunks say which draft source their text came from." })),
    }),
  ),
  max_tokens: t.Optional(t.Integer({ minimum: 1 })),
  temperature: t.Optional(t.Number({ minimum: 0, maximum: 2, description: "0 = greedy" })),
  top_p: t.Optional(t.Number({ exclusiveMinimum: 0, maximum: 1 })),
  top_k: t.Optional(t.Integer({ minimum: 0, description: "0 = off" })),
  min_p: t.Optional(t.Number({ minimum: 0, maximum: 1 })),
  presence_penalty: t.Optional(t.Number({ minimum: -2, maximum: 2 })),
  frequency_penalty: t.Optional(t.Number({ minimum: -2, maximum: 2 })),
  repetition_penalty: t.Optional(t.Number({ exclusiveMinimum: 0 })),
  logit_bias: t.Optional(
    t.Record(t.String(), t.Number({ minimum: -100, maximum: 100 }), {
      "x-must-be": "an object of token ids with numbers between -100 and 100",
    }),
  ),
  stop: t.Optional(
    t.Union([t.String({ minLength: 1 }), t.Array(t.String({ minLength: 1 }), { maxItems: STOPS_MAX })], {
      "x-must-be": `a non-empty string or a list of at most ${STOPS_MAX} non-empty strings`,
    }),
  ),
  seed: t.Optional(t.Integer()),
  n: t.Optional(t.Integer({ minimum: 1, maximum: 8 })),
  ignore_eos: t.Optional(t.Boolean({ description: "No end-of-sequence token ends the text." })),
  return_token_ids: t.Optional(t.Boolean({ description: "Adds prompt_token_ids and token_ids to the answer." })),
  ...formatFields,
};

const sharedSchema = t.Object(sharedFields);
export type SharedBody = Static<typeof sharedSchema>;

/** How the answer is delivered; nothing of it reaches the engine. */
export interface Delivery {
  /** The request's `model`, or null to show the loaded one. */
  readonly model: string | null;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly logprobs: boolean;
  readonly returnTokenIds: boolean;
}

type SharedRequest = Omit<GenerationRequest, "prompt" | "promptParam" | "maxTokens" | "topLogprobs" | "priority">;

/** The fields of `GenerationRequest` that both routes fill the same way; throws 400 for what cannot be honoured. */
export function sharedRequest(body: SharedBody): SharedRequest {
  const wanted = formatOf(body);
  if (wanted.format !== null && body.ignore_eos === true) {
    throw invalidRequest("ignore_eos", `'ignore_eos' cannot be combined with '${wanted.formatParam}'`);
  }
  return {
    temperature: body.temperature,
    topP: body.top_p,
    topK: body.top_k,
    minP: body.min_p,
    presencePenalty: body.presence_penalty,
    frequencyPenalty: body.frequency_penalty,
    repetitionPenalty: body.repetition_penalty,
    logitBias: logitBias(body.logit_bias),
    seed: body.seed,
    stops: typeof body.stop === "string" ? [body.stop] : (body.stop ?? []),
    n: body.n ?? 1,
    ignoreEos: body.ignore_eos ?? false,
    tellSources: body.stream_options?.include_speculation ?? false,
    toolPolicy: NO_TOOLS,
    reasoning: NO_REASONING,
    ...wanted,
  };
}

export function unsupported(param: string, what: string): Error {
  return invalidRequest(param, `${what} is not supported by this server`);
}

function logitBias(bias: SharedBody["logit_bias"]): (readonly [number, number])[] {
  return Object.entries(bias ?? {}).map(([key, value]) => {
    if (!/^\d{1,10}$/.test(key))
      throw invalidRequest("logit_bias", `'logit_bias' key '${clip(key)}' is not a token id`);
    return [Number(key), value] as const;
  });
}
