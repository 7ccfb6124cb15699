/**
 * The numbers of an answer: token usage and the `x_mlx_dspark` block (http-openai.md §3), from the engine's
 * statistics. Several choices are reported as one: a prompt is counted once however many choices it has, completions
 * are summed, and rows that ran side by side share their seconds (the longest counts).
 */
import { type Static, Type as t } from "@sinclair/typebox";
import type { GrammarStats, RequestStats } from "../../engine/protocol.ts";
import { byNumber, count, modeSchema, oneOf } from "../openapi/schemas.ts";
import type { ChoiceResult } from "./events.ts";
import type { GenerationJob } from "./job.ts";

const grammarSchema = t.Object({
  kind: oneOf("json_object", "json_schema", "tools", "ebnf", "regex", "choice"),
  compile_ms: t.Number(),
  cached: t.Boolean({ description: "It was compiled before." }),
  masked_rows: count,
  cut_drafts: count,
  forced_tokens: count,
  relaxed: t.Array(t.String(), { description: "JSON pointers of what of the schema is not enforced." }),
});

/** `x_mlx_dspark` of a finished answer or choice. */
export const reportSchema = t.Object(
  {
    mode: modeSchema,
    req: t.String({ description: "The request in /rounds and /events." }),
    accept_len: t.Number({ description: "Tokens committed a round." }),
    tokens_per_sec: t.Number({ description: "From the start of the prompt's reading." }),
    decode_tokens_per_sec: t.Number(),
    target_forwards: count,
    cap: t.Optional(t.Integer({ description: "Most drafts a round." })),
    lookup_rounds: t.Optional(count),
    rounds: t.Optional(count),
    drafted: t.Optional(count),
    accepted: t.Optional(count),
    parked_rounds: t.Optional(t.Integer({ description: "Plain steps, taken because drafting did not pay." })),
    accept_histogram: t.Optional(byNumber(count)),
    prompt_tokens: count,
    cached_tokens: count,
    completion_tokens: count,
    context_tokens: count,
    prefill_seconds: t.Number(),
    decode_seconds: t.Number(),
    ttft_seconds: t.Number(),
    queue_seconds: t.Number(),
    prefill_tokens_per_sec: t.Optional(t.Number()),
    grammar: t.Optional(grammarSchema),
    decay_ratio: t.Optional(t.Number({ description: "Speed at the end over speed at the beginning." })),
  },
  { $id: "Report" },
);

export type Report = Static<typeof reportSchema>;

/** `x_mlx_dspark` of an answer that has only begun. */
export const referenceSchema = t.Object({ req: t.String() }, { $id: "RequestReference" });

export interface TokenUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Those of them that were thoughts. */
  readonly reasoningTokens: number;
}

/** What a finished choice tells about its row. */
export type FinishedChoice = Pick<ChoiceResult, "choice" | "completionTokens" | "reasoningTokens" | "stats">;

/** Usage of the whole request. */
export function usageOf(job: GenerationJob, finished: readonly FinishedChoice[]): TokenUsage {
  const byChoice = new Map(finished.map((f) => [f.choice, f]));
  let cachedTokens = 0;
  const seen = new Set<number>();
  for (const row of job.rows) {
    const first = row.choices[0];
    if (seen.has(row.promptIndex) || first === undefined) continue;
    seen.add(row.promptIndex);
    cachedTokens += byChoice.get(first)?.stats.cachedTokens ?? 0;
  }
  return {
    promptTokens: job.prompts.reduce((sum, ids) => sum + ids.length, 0),
    cachedTokens,
    completionTokens: finished.reduce((sum, f) => sum + f.completionTokens, 0),
    reasoningTokens: finished.reduce((sum, f) => sum + f.reasoningTokens, 0),
  };
}

/** The `x_mlx_dspark` object. */
export function reportBlock(requestId: string, usage: TokenUsage, finished: readonly FinishedChoice[]): Report {
  // Choices that share a row share its statistics object: the row's work is counted once.
  const rows = new Map(finished.map((f) => [f.stats, f.completionTokens]));
  const distinct = [...rows.keys()];
  const prefill = longest(distinct, (s) => s.prefillSeconds);
  const decode = longest(distinct, (s) => s.decodeSeconds);
  const queue = longest(distinct, (s) => s.queueSeconds);
  const ttft = longest(distinct, (s) => s.ttftSeconds);
  const committed = sum(distinct, (s) => sumOf(s.acceptLengths));
  const rounds = sum(distinct, (s) => s.acceptLengths.length);
  const forwards = sum(distinct, (s) => s.targetForwards);
  const lookupRounds = sum(distinct, (s) => s.lookupRounds);
  const kept = [...rows.values()].reduce((total, tokens) => total + tokens, 0);
  const endToEnd = rate(kept, prefill + decode);
  const fresh = usage.promptTokens - usage.cachedTokens;
  const cap = distinct.find((s) => s.cap !== null)?.cap;
  const speculates = distinct.some((s) => s.mode !== "baseline");
  const grammars = distinct.flatMap(({ grammar }) => grammar ?? []);
  const grammar = grammarBlock(grammars);
  const [only] = distinct;
  const decay = distinct.length === 1 && only !== undefined ? only.decayRatio : null;
  return {
    mode: distinct[0]?.mode ?? "baseline",
    req: requestId,
    // The first token belongs to the prompt's forward, not to a round.
    accept_len: rounds > 0 ? round(committed / rounds, 3) : 1,
    tokens_per_sec: round(endToEnd, 1),
    decode_tokens_per_sec: round(Math.max(endToEnd, rate(kept, decode)), 1),
    target_forwards: forwards,
    ...(cap != null && { cap }),
    ...(lookupRounds > 0 && { lookup_rounds: lookupRounds }),
    ...(speculates && {
      rounds,
      drafted: sum(distinct, (s) => s.drafted),
      accepted: sum(distinct, (s) => s.accepted),
      parked_rounds: sum(distinct, (s) => s.parkedRounds),
      accept_histogram: histogram(distinct.flatMap((s) => s.acceptLengths)),
    }),
    prompt_tokens: usage.promptTokens,
    cached_tokens: usage.cachedTokens,
    completion_tokens: usage.completionTokens,
    context_tokens: usage.promptTokens + usage.completionTokens,
    prefill_seconds: round(prefill, 3),
    decode_seconds: round(decode, 3),
    ttft_seconds: round(ttft, 3),
    queue_seconds: round(queue, 3),
    // Below 16 fresh tokens the rate says more about overhead than about prefill (http-openai.md §3).
    ...(fresh >= 16 && prefill > 0 && { prefill_tokens_per_sec: round(fresh / prefill, 1) }),
    ...(grammar !== null && { grammar }),
    ...(decay !== null && { decay_ratio: round(decay, 4) }),
  };
}

/** Rows of one request have one grammar. */
function grammarBlock(grammars: readonly GrammarStats[]): Static<typeof grammarSchema> | null {
  const [first] = grammars;
  if (first === undefined) return null;
  const total = (value: (stats: GrammarStats) => number) => grammars.reduce((all, one) => all + value(one), 0);
  return {
    kind: first.kind,
    compile_ms: round(Math.max(...grammars.map(({ compileMs }) => compileMs)), 1),
    cached: grammars.every(({ cached }) => cached),
    masked_rows: total(({ maskedRows }) => maskedRows),
    cut_drafts: total(({ cutDrafts }) => cutDrafts),
    forced_tokens: total(({ forcedTokens }) => forcedTokens),
    relaxed: [...first.relaxed],
  };
}

/** The block of one choice of a stream, from its own row. */
export function choiceReport(job: GenerationJob, finished: FinishedChoice): Report {
  const row = job.rows.find((r) => r.choices.includes(finished.choice));
  const usage: TokenUsage = {
    promptTokens: row?.request.promptIds.length ?? 0,
    cachedTokens: finished.stats.cachedTokens,
    completionTokens: finished.completionTokens,
    reasoningTokens: finished.reasoningTokens,
  };
  return reportBlock(job.id, usage, [finished]);
}

function rate(tokens: number, seconds: number): number {
  return seconds > 0 ? tokens / seconds : 0;
}

function sum(stats: readonly RequestStats[], value: (s: RequestStats) => number): number {
  return stats.reduce((total, s) => total + value(s), 0);
}

function sumOf(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Committed tokens of a round → rounds, ascending. */
export function histogram(acceptLengths: readonly number[]): Record<string, number> {
  const counts = new Map<number, number>();
  for (const length of acceptLengths) counts.set(length, (counts.get(length) ?? 0) + 1);
  return Object.fromEntries([...counts].sort(([a], [b]) => a - b));
}

function longest(stats: readonly RequestStats[], value: (s: RequestStats) => number): number {
  return stats.reduce((most, s) => Math.max(most, value(s)), 0);
}

function round(value: number, digits: number): number {
  const scale = 10 ** digits;
  return Math.round(value * scale) / scale;
}
