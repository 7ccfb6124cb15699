/**
 * From runs to figures: medians per prompt over the trials, the row of an arm as the mean of its prompts, speedups as
 * medians of paired ratios (the same prompt and trial), the histogram of accepted lengths and the split of a round.
 */
import { type CostSplit, costSplit } from "../../engine/cost-split.ts";
import type { DraftingCosts } from "../../engine/protocol.ts";
import { histogram } from "../../server/generation/report.ts";
import type { Arm } from "./arms.ts";
import type { Measured, Runs } from "./measure.ts";
import { type PromptName, ROW_PROMPTS } from "./prompts.ts";

export interface Figures {
  /** Completion tokens per second of prefill and decode. */
  readonly tokensPerSecond: number;
  readonly decodeTokensPerSecond: number;
  readonly prefillTokensPerSecond: number;
  /** Tokens committed per round; 1 is no gain. */
  readonly accept: number;
}

export interface PromptSummary extends Figures {
  readonly tokens: number;
  /** Of tokens per second over the trials. */
  readonly spread: readonly [number, number];
  /** Decode against baseline, the same trial: median, least, most. */
  readonly decodeSpeedup: readonly [number, number, number];
  readonly acceptHistogram: Readonly<Record<string, number>>;
  readonly drafted: number;
  readonly accepted: number;
  readonly lookupRounds: number;
  readonly parkedRounds: number;
  readonly rounds: number;
}

export interface ArmSummary {
  readonly arm: Arm;
  /** Means of the row's prompts. */
  readonly row: Figures;
  /** End to end and decode, of the row, against baseline's row. */
  readonly speedup: number;
  readonly decodeSpeedup: number;
  readonly perPrompt: ReadonlyMap<PromptName, PromptSummary>;
  readonly acceptHistogram: Readonly<Record<string, number>>;
  /** null where nothing was measured at load. */
  readonly split: CostSplit | null;
  /** Decode speedup that was had of what committed tokens and expected round costs promise; null: not known. */
  readonly efficiency: number | null;
}

export function summarize(runs: Runs, costs: DraftingCosts | null): ArmSummary[] {
  const [baseline] = runs.values();
  const summaries: ArmSummary[] = [];
  for (const [arm, cells] of runs) {
    const perPrompt = new Map<PromptName, PromptSummary>();
    for (const [name, trials] of cells) perPrompt.set(name, promptSummary(trials, baseline?.get(name) ?? []));
    const all = [...cells.values()].flat();
    const row = rowOf(perPrompt);
    const reference = summaries[0]?.row ?? row;
    summaries.push({
      arm,
      row,
      speedup: ratio(row.tokensPerSecond, reference.tokensPerSecond),
      decodeSpeedup: ratio(row.decodeTokensPerSecond, reference.decodeTokensPerSecond),
      perPrompt,
      acceptHistogram: histogram(all.flatMap(({ stats }) => stats.acceptLengths)),
      ...splitOf(all, costs, [...(baseline?.values() ?? [])].flat()),
    });
  }
  return summaries;
}

function promptSummary(trials: readonly Measured[], baseline: readonly Measured[]): PromptSummary {
  const figures = trials.map(figuresOf);
  const speeds = figures.map(({ tokensPerSecond }) => tokensPerSecond);
  const gains = trials.flatMap((run, i) => {
    const other = baseline[i];
    return other === undefined
      ? []
      : [ratio(figuresOf(run).decodeTokensPerSecond, figuresOf(other).decodeTokensPerSecond)];
  });
  const total = (value: (run: Measured) => number) => trials.reduce((sum, run) => sum + value(run), 0);
  return {
    tokensPerSecond: median(speeds),
    decodeTokensPerSecond: median(figures.map((f) => f.decodeTokensPerSecond)),
    prefillTokensPerSecond: median(figures.map((f) => f.prefillTokensPerSecond)),
    accept: median(figures.map((f) => f.accept)),
    tokens: trials[0]?.ids.length ?? 0,
    spread: [Math.min(...speeds), Math.max(...speeds)],
    decodeSpeedup: [median(gains), Math.min(...gains), Math.max(...gains)],
    acceptHistogram: histogram(trials.flatMap(({ stats }) => stats.acceptLengths)),
    drafted: total(({ stats }) => stats.drafted),
    accepted: total(({ stats }) => stats.accepted),
    lookupRounds: total(({ stats }) => stats.lookupRounds),
    parkedRounds: total(({ stats }) => stats.parkedRounds),
    rounds: total(({ stats }) => stats.rounds),
  };
}

export function figuresOf({ stats }: Measured): Figures {
  const { completionTokens, prefillSeconds, decodeSeconds, promptTokens, cachedTokens, acceptLengths } = stats;
  const committed = acceptLengths.reduce((sum, length) => sum + length, 0);
  return {
    tokensPerSecond: ratio(completionTokens, prefillSeconds + decodeSeconds),
    decodeTokensPerSecond: ratio(completionTokens, decodeSeconds),
    prefillTokensPerSecond: ratio(promptTokens - cachedTokens, prefillSeconds),
    accept: acceptLengths.length === 0 ? 1 : committed / acceptLengths.length,
  };
}

function rowOf(perPrompt: ReadonlyMap<PromptName, PromptSummary>): Figures {
  const rows = ROW_PROMPTS.flatMap((name) => perPrompt.get(name) ?? []);
  const counted = rows.length > 0 ? rows : [...perPrompt.values()];
  const mean = (value: (figures: Figures) => number) =>
    ratio(
      counted.reduce((sum, figures) => sum + value(figures), 0),
      counted.length,
    );
  return {
    tokensPerSecond: mean((f) => f.tokensPerSecond),
    decodeTokensPerSecond: mean((f) => f.decodeTokensPerSecond),
    prefillTokensPerSecond: mean((f) => f.prefillTokensPerSecond),
    accept: mean((f) => f.accept),
  };
}

/** Over all prompts and trials together. */
function splitOf(all: readonly Measured[], costs: DraftingCosts | null, baseline: readonly Measured[]) {
  if (costs === null) return { split: null, efficiency: null };
  const seconds = (runs: readonly Measured[]) => runs.reduce((sum, { stats }) => sum + stats.decodeSeconds, 0);
  const tokens = (runs: readonly Measured[]) => runs.reduce((sum, { ids }) => sum + ids.length, 0);
  const rounds = all.flatMap((run) => run.rounds);
  const requests = all.map((run) => ({ promptTokens: run.stats.promptTokens, rounds: run.rounds }));
  const split = costSplit(costs, requests, seconds(all));
  if (split === null || split.plainSteps === null) return { split, efficiency: null };
  const committed = rounds.reduce((sum, { accepted }) => sum + accepted + 1, 0) / rounds.length;
  const gain = ratio(tokens(all) / seconds(all), tokens(baseline) / seconds(baseline));
  return { split, efficiency: gain / (committed / split.plainSteps) };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? 0;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

function ratio(a: number, b: number): number {
  return b > 0 ? a / b : 0;
}
