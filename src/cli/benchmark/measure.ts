/**
 * The runs of a benchmark. Every prompt is run by every arm, one after the other, in an order that moves on with each
 * prompt and trial: what the machine does meanwhile falls on all arms alike.
 */
import type { EngineClient } from "../../engine/client.ts";
import type { GenerateRequest, RequestStats, RoundInfo, TokenLogprob } from "../../engine/protocol.ts";
import { CliError } from "../errors.ts";
import type { Arm } from "./arms.ts";
import type { PromptName } from "./prompts.ts";

/** One request, run to its end. */
export interface Measured {
  readonly ids: readonly number[];
  /** Empty unless asked for. */
  readonly logprobs: readonly TokenLogprob[];
  readonly rounds: readonly RoundInfo[];
  readonly stats: RequestStats;
}

export interface BenchPrompt {
  readonly name: PromptName;
  readonly ids: readonly number[];
}

export interface BenchContext {
  readonly engine: EngineClient;
  readonly eosIds: readonly number[];
  readonly maxNewTokens: number;
  readonly contextWindow: number;
  readonly signal: AbortSignal;
}

export const GREEDY: GenerateRequest["sampling"] = {
  temperature: 0,
  topP: 1,
  topK: 0,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  logitBias: [],
  seed: null,
};

/** Greedy. Rejects with `CliError` when it was interrupted. */
export async function measure(
  context: BenchContext,
  promptIds: readonly number[],
  arm: Arm,
  topLogprobs: number | null = null,
): Promise<Measured> {
  const { engine, eosIds, signal } = context;
  const room = context.contextWindow - promptIds.length;
  const request: GenerateRequest = {
    id: crypto.getRandomValues(Buffer.alloc(4)).toString("hex"),
    promptIds,
    maxNewTokens: Math.max(1, Math.min(context.maxNewTokens, room)),
    sampling: GREEDY,
    eosIds,
    topLogprobs,
    priority: 0,
    speculation: arm.speculation,
  };
  const [ids, logprobs, rounds]: [number[], TokenLogprob[], RoundInfo[]] = [[], [], []];
  for await (const event of engine.generate(request, signal)) {
    if (event.type === "tokens") {
      ids.push(...event.ids);
      logprobs.push(...(event.logprobs ?? []));
      if (event.round !== null) rounds.push(event.round);
    }
    if (event.type !== "done") continue;
    if (event.reason === "cancelled") break;
    return { ids, logprobs, rounds, stats: event.stats };
  }
  throw new CliError("the benchmark was interrupted", 1);
}

/** Runs by arm and prompt; of each cell one run a trial, in order. */
export type Runs = ReadonlyMap<Arm, ReadonlyMap<PromptName, readonly Measured[]>>;

export async function measureAll(
  context: BenchContext,
  arms: readonly Arm[],
  prompts: readonly BenchPrompt[],
  trials: number,
  onStep: (trial: number, prompt: PromptName) => void,
): Promise<Runs> {
  const cells = new Map(arms.map((arm) => [arm, new Map(prompts.map(({ name }) => [name, [] as Measured[]]))]));
  for (let trial = 0; trial < trials; trial++) {
    for (const [index, { name, ids }] of prompts.entries()) {
      onStep(trial, name);
      const first = (trial + index) % arms.length;
      for (const arm of [...arms.slice(first), ...arms.slice(0, first)]) {
        cells
          .get(arm)
          ?.get(name)
          ?.push(await measure(context, ids, arm));
      }
    }
  }
  return cells;
}
