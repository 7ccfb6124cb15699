/**
 * `mlx-dspark generate`: one prompt, one answer. The text goes to stdout as it comes, everything else to stderr. It
 * runs the same chain as the server (job, stop strings, events), with one request.
 */
import type { EngineClient } from "../engine/client.ts";
import { EVIDENCE_LOGPROBS } from "../engine/lossless.ts";
import { ChoiceCollector, type ChoiceEvent, type ChoiceResult } from "../server/generation/events.ts";
import { reportBlock, usageOf } from "../server/generation/report.ts";
import {
  type GenerationRequest,
  NO_REASONING,
  NO_TOOLS,
  type PromptSource,
  type ReasoningWish,
} from "../server/generation/request.ts";
import { GenerationService, type RunningGeneration } from "../server/generation/service.ts";
import { DEFAULT_SERVER_OPTIONS } from "../server/options.ts";
import { defineCliCommand } from "./command.ts";
import { INTERRUPTED, unlessInterrupted, withEngine } from "./engine-session.ts";
import { usageError } from "./errors.ts";
import { type FlagValues, listFlag, numberFlag, switchFlag, textFlag } from "./flags.ts";
import { banner, footer } from "./footer.ts";
import { type CliIo, say } from "./io.ts";
import { type LoadedModel, loadModel } from "./load-model.ts";
import {
  checkable,
  checkLossless,
  inexactCaches,
  type LosslessVerdict,
  losslessJson,
  losslessLines,
} from "./lossless-report.ts";
import { chosenModel, kvBits, loadSpec, modelFlags } from "./model-flags.ts";
import { readPrompt } from "./prompt.ts";
import { thinkingFlags } from "./reply-flags.ts";
import { Thoughts } from "./thoughts.ts";

export const generateFlags = {
  prompt: textFlag({ help: "the prompt; - reads stdin, @FILE a file", hint: "TEXT" }),
  "prompt-file": textFlag({ help: "file that holds the prompt", hint: "FILE" }),
  system: textFlag({ help: "system message", hint: "TEXT" }),
  "max-new-tokens": numberFlag(220, { min: 1, integer: true }, { help: "most tokens of the answer" }),
  temperature: numberFlag(0, { min: 0, max: 2 }, { help: "0 = greedy" }),
  "top-p": numberFlag(1, { min: 0, above: true, max: 1 }, { help: "smallest set with this probability; 1 = off" }),
  "top-k": numberFlag(0, { min: 0, integer: true }, { help: "most likely tokens only; 0 = off" }),
  "min-p": numberFlag(0, { min: 0, max: 1 }, { help: "drop tokens below this share of the best; 0 = off" }),
  seed: numberFlag(null, { integer: true }, { help: "same seed, same text", defaultText: "random" }),
  stop: listFlag({ help: "end the text before this string (repeatable)", hint: "TEXT" }),
  "chat-template": switchFlag("use the model's chat template; --no-chat-template gives it the bare text", true),
  stream: switchFlag("print text as it comes; --no-stream prints at the end", true),
  json: switchFlag("one JSON object on stdout: text, token_ids, finish_reason, x_mlx_dspark"),
  "verify-lossless": switchFlag("afterwards read the answer again, a token at a time, and compare every choice"),
  ...thinkingFlags,
  ...modelFlags,
};

type GenerateFlags = FlagValues<typeof generateFlags>;

export const generateCommand = defineCliCommand({
  name: "generate",
  description: "Answer one prompt",
  flags: generateFlags,
  run: runGenerate,
});

async function runGenerate(flags: GenerateFlags, io: CliIo): Promise<number> {
  const stops = flags.stop;
  if (stops.includes("")) throw usageError("--stop must not be empty");
  if (flags.system !== null && !flags["chat-template"]) throw usageError("--system needs the chat template");
  if (flags["verify-lossless"]) checkable(flags.temperature, flags.seed);
  const prompt = await readPrompt(flags.prompt, flags["prompt-file"], io);
  const model = chosenModel(flags, io);
  const spec = loadSpec(model, flags, io, { contextWindow: null, maxBatch: 1, maxQueue: 1 });

  return withEngine(io, async ({ engine, signal }) => {
    say(io, `loading ${flags.mode}: target=${model}${flags.drafter === null ? "" : `, drafter=${flags.drafter}`}`);
    const loaded = await unlessInterrupted(loadModel(engine, spec, io), signal);
    if (loaded === null) return INTERRUPTED;
    if (!flags.json) io.stderr.write(banner(loaded.model));
    return answer(generationRequest(flags, prompt), { engine, loaded, flags, io, signal });
  });
}

interface AnswerParts {
  readonly engine: EngineClient;
  readonly loaded: LoadedModel;
  readonly flags: GenerateFlags;
  readonly io: CliIo;
  readonly signal: AbortSignal;
}

async function answer(request: GenerationRequest, parts: AnswerParts): Promise<number> {
  const { engine, loaded, flags, io, signal } = parts;
  const cap = request.maxTokens ?? DEFAULT_SERVER_OPTIONS.maxTokensCap;
  const options = { ...DEFAULT_SERVER_OPTIONS, maxBatch: 1, maxTokensCap: cap, kvBits: kvBits(flags) };
  const service = new GenerationService({ engine, text: () => loaded.text, options });
  using running = await service.begin(request, signal);
  const streaming = flags.stream && !flags.json;
  const thoughts = new Thoughts(io.stderr, io.env);
  const result = await collect(running, (event) => {
    if (!streaming) return;
    if (event.type === "reasoning") thoughts.write(event.text);
    else thoughts.end();
    if (event.type === "text") io.stdout.write(event.text);
  });
  if (result === null) return INTERRUPTED;
  if (!flags.json) {
    if (!streaming) thoughts.whole(result.reasoning);
    io.stdout.write(streaming ? "\n" : `${result.text}\n`);
    io.stderr.write(footer(result.stats, result.completionTokens));
  }
  if (result.reason === "cancelled") return INTERRUPTED;
  const verdict = flags["verify-lossless"] ? await verify(running, result, parts) : null;
  if (flags.json) io.stdout.write(`${JSON.stringify(jsonAnswer(running, result, verdict))}\n`);
  else if (verdict !== null) for (const line of losslessLines(verdict, flags.temperature === 0)) say(io, line);
  return verdict === null || verdict.lossless ? 0 : 1;
}

function verify(running: RunningGeneration, { tokens }: ChoiceResult, { engine, signal }: AnswerParts) {
  const { prompts, rows, model } = running.job;
  const sampling = rows[0]?.request.sampling;
  if (sampling === undefined) throw new Error("a job without rows has an answer");
  const logprobs = tokens.flatMap(({ logprob }) => logprob ?? []);
  const run = {
    promptIds: prompts[0] ?? [],
    ids: tokens.map(({ id }) => id),
    logprobs: sampling.temperature === 0 ? logprobs : null,
  };
  return checkLossless(engine, run, { sampling, inexactCaches: inexactCaches(model), signal });
}

/** The one choice's result; null when an interrupt ended the request before the engine could report on it. */
async function collect(
  running: RunningGeneration,
  onEvent: (event: ChoiceEvent) => void,
): Promise<ChoiceResult | null> {
  const collector = new ChoiceCollector();
  for await (const event of running.events) {
    collector.push(event);
    onEvent(event);
  }
  return collector.results()[0] ?? null;
}

function jsonAnswer(running: RunningGeneration, result: ChoiceResult, verdict: LosslessVerdict | null) {
  return {
    text: result.text,
    ...(result.reasoning !== "" && { reasoning: result.reasoning }),
    token_ids: result.tokens.map((token) => token.id),
    finish_reason: result.reason,
    x_mlx_dspark: reportBlock(running.job.id, usageOf(running.job, [result]), [result]),
    ...(verdict !== null && { lossless: losslessJson(verdict) }),
  };
}

function generationRequest(flags: GenerateFlags, prompt: string): GenerationRequest {
  return {
    prompt: promptSource(flags, prompt),
    promptParam: "prompt",
    maxTokens: flags["max-new-tokens"],
    temperature: flags.temperature,
    topP: flags["top-p"],
    topK: flags["top-k"],
    minP: flags["min-p"],
    presencePenalty: undefined,
    frequencyPenalty: undefined,
    repetitionPenalty: undefined,
    logitBias: [],
    seed: flags.seed ?? undefined,
    stops: flags.stop,
    n: 1,
    ignoreEos: false,
    topLogprobs: flags["verify-lossless"] ? EVIDENCE_LOGPROBS : null,
    priority: 0,
    toolPolicy: NO_TOOLS,
    reasoning: reasoningWish(flags),
    format: null,
    formatParam: "response_format",
  };
}

function reasoningWish(flags: GenerateFlags): ReasoningWish {
  // A bare text has no template that could be asked.
  if (!flags["chat-template"]) return NO_REASONING;
  return {
    thinking: flags.thinking ? undefined : false,
    effort: flags["reasoning-effort"] ?? undefined,
    split: true,
  };
}

function promptSource(flags: GenerateFlags, prompt: string): PromptSource {
  if (!flags["chat-template"]) return { kind: "texts", texts: [prompt] };
  const system = flags.system === null ? [] : [{ role: "system" as const, content: flags.system }];
  return { kind: "chat", conversation: { messages: [...system, { role: "user", content: prompt }] } };
}
