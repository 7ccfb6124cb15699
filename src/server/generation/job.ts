/**
 * From a request to rows of the engine: encodes the prompt, applies the defaults (request → server flags →
 * generation_config.json → neutral) and the limits (cap, context window), and refuses what cannot run before
 * anything reaches the engine. Pure: the same request, model and options give the same job, up to its ids.
 */
import type { GenerateRequest, ModelInfo, SamplingParams } from "../../engine/protocol.ts";
import { PLAIN_REPLY, type ReplyForm } from "../../text/index.ts";
import { invalidRequest } from "../errors.ts";
import type { ServerOptions } from "../options.ts";
import { chatPrompt, type ReplyDefaults, replyFamily, thinkingWanted } from "./chat-prompt.ts";
import { constraintOf, withFormatLine } from "./constraint.ts";
import type { GenerationRequest } from "./request.ts";
import type { TextSource } from "./text.ts";

/** Most choices one request may ask for in all (prompts × n). Ours: a bound on what one body can start. */
export const CHOICES_MAX = 128;

/** One engine row and the choices that show its output (several when greedy choices would be equal). */
export interface JobRow {
  readonly request: GenerateRequest;
  readonly choices: readonly number[];
  readonly promptIndex: number;
}

export interface GenerationJob {
  /** 8 hex digits; shown to the client as `x_mlx_dspark.req`. The first row's request id. */
  readonly id: string;
  readonly model: ModelInfo;
  readonly rows: readonly JobRow[];
  readonly choiceCount: number;
  readonly prompts: readonly (readonly number[])[];
  readonly stops: readonly string[];
  /** Ids whose text never shows, whether or not they end the row. */
  readonly silentIds: ReadonlySet<number>;
  /** What the replies' text is read as. */
  readonly reply: ReplyForm;
  /** A reply ends with its first call. */
  readonly oneCall: boolean;
  /** Pieces of text say who proposed them. */
  readonly tellSources: boolean;
}

export interface JobContext {
  readonly model: ModelInfo;
  readonly text: TextSource;
  readonly options: Pick<ServerOptions, "defaultMaxTokens" | "maxTokensCap" | "samplingDefaults"> & ReplyDefaults;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  /** Source of fresh request ids, injectable for tests. */
  readonly newId?: () => string;
}

/** Builds the job; rejects with `RequestError` 400 naming the field. */
export async function prepareJob(request: GenerationRequest, context: JobContext): Promise<GenerationJob> {
  const { model, text, options } = context;
  const newId = context.newId ?? randomRequestId;
  const { prompts, reply } = await readPrompts(request, context);
  const choiceCount = prompts.length * request.n;
  if (choiceCount > CHOICES_MAX) {
    throw invalidRequest(request.promptParam, `at most ${CHOICES_MAX} choices per request, got ${choiceCount}`);
  }
  for (const [id] of request.logitBias) {
    if (id >= model.vocabSize) {
      throw invalidRequest("logit_bias", `token id ${id} is not below the vocabulary size ${model.vocabSize}`);
    }
  }
  const eosIds = [...new Set([...model.eosIds, ...text.eosIds])];
  const sampling = resolveSampling(request, model, options);
  const wanted = Math.min(request.maxTokens ?? options.defaultMaxTokens, options.maxTokensCap);
  const rows: JobRow[] = [];
  const thinking = thinkingWanted(request, options);
  const family = replyFamily(text, options, request.toolPolicy);
  const constraints = prompts.map((ids) => constraintOf(request, text.grammarFacts, ids, { thinking, family }));
  prompts.forEach((promptIds, promptIndex) => {
    const constraint = constraints[promptIndex] ?? null;
    checkLength(promptIds, request.promptParam, model.contextWindow);
    const first = promptIndex * request.n;
    const choices = Array.from({ length: request.n }, (_, i) => first + i);
    // Greedy choices are equal by definition: one row serves them all.
    const groups = sampling.temperature === 0 ? [choices] : choices.map((choice) => [choice]);
    groups.forEach((group, i) => {
      rows.push({
        promptIndex,
        choices: group,
        request: {
          id: newId(),
          promptIds,
          maxNewTokens: Math.min(wanted, model.contextWindow - promptIds.length),
          sampling: { ...sampling, seed: request.seed === undefined ? null : seedText(request.seed, i) },
          eosIds: request.ignoreEos ? [] : eosIds,
          topLogprobs: request.topLogprobs,
          priority: request.priority,
          ...(constraint !== null && { constraint }),
        },
      });
    });
  });
  const id = rows[0]?.request.id ?? newId();
  const oneCall = !request.toolPolicy.parallel;
  // Only the end of its grammar ends an answer that has one; a call that merely may come leaves the text before it free.
  const isBound = request.format !== null || request.toolPolicy.choice.kind !== "auto";
  const stops = isBound && constraints.some((constraint) => constraint !== null) ? [] : request.stops;
  const { tellSources = false } = request;
  return { id, model, rows, choiceCount, prompts, stops, silentIds: new Set(eosIds), reply, oneCall, tellSources };
}

/** Ids of the request's prompts; rejects with `RequestError` 400. */
export async function encodePrompts(
  request: GenerationRequest,
  context: JobContext,
): Promise<readonly (readonly number[])[]> {
  return (await readPrompts(request, context)).prompts;
}

interface ReadPrompts {
  readonly prompts: readonly (readonly number[])[];
  readonly reply: ReplyForm;
}

async function readPrompts(given: GenerationRequest, context: JobContext): Promise<ReadPrompts> {
  const request = withFormatLine(given);
  if (request.prompt.kind === "chat") {
    const { ids, reply } = await chatPrompt(request.prompt, request, context);
    return { prompts: [ids], reply };
  }
  return { prompts: rawPrompts(request.prompt, request.promptParam, context), reply: PLAIN_REPLY };
}

function rawPrompts(
  prompt: Exclude<GenerationRequest["prompt"], { kind: "chat" }>,
  promptParam: string,
  { model, text }: JobContext,
): readonly (readonly number[])[] {
  switch (prompt.kind) {
    case "texts":
      return prompt.texts.map((one) => text.encodeCompletion(one));
    case "ids":
      for (const ids of prompt.ids) {
        const bad = ids.find((id) => id >= model.vocabSize);
        if (bad !== undefined) {
          throw invalidRequest(promptParam, `token id ${bad} is not below the vocabulary size ${model.vocabSize}`);
        }
      }
      return prompt.ids;
  }
}

function checkLength(ids: readonly number[], param: string, window: number): void {
  if (ids.length === 0) throw invalidRequest(param, `'${param}' gives an empty prompt: no token to continue from`);
  if (ids.length >= window) {
    // Clients look for these words or for the code (http-openai.md §2).
    const message = `prompt is too long: ${ids.length} tokens > ${window} maximum`;
    throw invalidRequest(param, message, "context_length_exceeded");
  }
}

function resolveSampling(
  request: GenerationRequest,
  model: ModelInfo,
  options: JobContext["options"],
): Omit<SamplingParams, "seed"> {
  const flags = options.samplingDefaults;
  const config = model.samplingDefaults;
  return {
    temperature: request.temperature ?? flags.temperature ?? config.temperature ?? 0,
    topP: request.topP ?? flags.topP ?? config.topP ?? 1,
    topK: request.topK ?? flags.topK ?? config.topK ?? 0,
    minP: request.minP ?? 0,
    presencePenalty: request.presencePenalty ?? 0,
    frequencyPenalty: request.frequencyPenalty ?? 0,
    repetitionPenalty: request.repetitionPenalty ?? 1,
    logitBias: request.logitBias,
  };
}

/** Choice i samples with seed + i, as an unsigned 64-bit number (negative seeds wrap). */
function seedText(seed: number, choice: number): string {
  return BigInt.asUintN(64, BigInt(seed) + BigInt(choice)).toString();
}

/** 8 hex digits. */
export function randomRequestId(): string {
  return crypto.getRandomValues(Buffer.alloc(4)).toString("hex");
}
