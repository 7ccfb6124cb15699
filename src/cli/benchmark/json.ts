/**
 * A benchmark as JSON, and reading one back. The keys of the Python mlx-dspark 0.20.3 have its meaning and rounding
 * (cli.md §6), so that `--peer-json` takes files of either program.
 */
import type { ModelInfo } from "../../engine/protocol.ts";
import { CliError } from "../errors.ts";
import type { SkippedMode } from "./arms.ts";
import type { ArmSummary, Figures } from "./summary.ts";
import type { ArmVerdict } from "./verdicts.ts";

export interface BenchmarkReport {
  readonly version: string;
  readonly device: string;
  readonly mlx: string;
  readonly model: ModelInfo;
  readonly trials: number;
  readonly maxNewTokens: number;
  readonly settings: Readonly<Record<string, string>>;
  readonly summaries: readonly ArmSummary[];
  readonly verdicts: ReadonlyMap<ArmSummary["arm"], ArmVerdict>;
  readonly skipped: readonly SkippedMode[];
}

export function benchmarkJson(report: BenchmarkReport) {
  const { model } = report;
  return {
    device: report.device,
    mlx: report.mlx,
    target: model.requested,
    version: report.version,
    backend: model.backend,
    drafter: model.drafter,
    max_new_tokens: report.maxNewTokens,
    runs: report.summaries.map((summary) => runJson(summary, report)),
    skipped: report.skipped,
  };
}

function runJson(summary: ArmSummary, { verdicts, trials, settings }: BenchmarkReport) {
  const { arm, row, perPrompt, split } = summary;
  const verdict = verdicts.get(arm);
  const speeds = [...perPrompt.values()].flatMap(({ spread }) => spread);
  return {
    run: arm.label,
    ...figuresJson(row),
    per_prompt: Object.fromEntries(
      [...perPrompt].map(([name, one]) => [
        name,
        {
          ...figuresJson(one),
          tokens: one.tokens,
          spread: one.spread.map((x) => round(x, 1)),
          decode_speedup: one.decodeSpeedup.map((x) => round(x, 3)),
          rounds: one.rounds,
          drafted: one.drafted,
          accepted: one.accepted,
          lookup_rounds: one.lookupRounds,
          parked_rounds: one.parkedRounds,
          accept_histogram: one.acceptHistogram,
        },
      ]),
    ),
    mode: arm.mode,
    speedup: round(summary.speedup, 3),
    decode_speedup: round(summary.decodeSpeedup, 3),
    identical_to_baseline: verdict === undefined || verdict.identical ? true : differencesJson(verdict),
    lossless: verdict?.lossless ?? true,
    replay: replayJson(verdict),
    trials,
    spread: [round(Math.min(...speeds), 1), round(Math.max(...speeds), 1)],
    accept_histogram: summary.acceptHistogram,
    round_ms:
      split === null
        ? null
        : {
            measured: round(split.measured, 3),
            draft: round(split.draft, 3),
            verify: round(split.verify, 3),
            overhead: round(split.overhead, 3),
            rest: round(split.rest, 3),
            plain_steps: split.plainSteps === null ? null : round(split.plainSteps, 3),
          },
    efficiency: summary.efficiency === null ? null : round(summary.efficiency, 3),
    settings: { ...settings, speculation: arm.speculation },
  };
}

function figuresJson(figures: Figures) {
  return {
    tok_s: round(figures.tokensPerSecond, 1),
    decode_tok_s: round(figures.decodeTokensPerSecond, 1),
    accept: round(figures.accept, 2),
    prefill_tok_s: round(figures.prefillTokensPerSecond, 1),
  };
}

function differencesJson({ differences }: ArmVerdict) {
  return differences.map((difference) => ({
    prompt: difference.prompt,
    first_diff: difference.firstDiff,
    length_only: difference.lengthOnly,
    reference_token: difference.referenceToken,
    arm_token: difference.armToken,
    kind: difference.kind,
    ...(difference.margin !== undefined && {
      margin: difference.margin,
      top2_margin: difference.top2Margin,
      logits: difference.logits,
    }),
    approximate: difference.approximate,
  }));
}

function replayJson(verdict: ArmVerdict | undefined) {
  if (verdict === undefined || verdict.replay === null) return null;
  const { tokens, argmaxEqual, maxGapAtMismatch, misranked } = verdict.replay;
  return { tokens, argmax_equal: argmaxEqual, max_gap_at_mismatch: maxGapAtMismatch, misranked };
}

function round(value: number, digits: number): number {
  return Number.isFinite(value) ? Number(value.toFixed(digits)) : 0;
}

/** A run of a saved benchmark: what both programs write. */
export interface SavedRun {
  readonly run: string;
  readonly tokS: number;
  readonly decodeTokS: number;
  readonly accept: number;
}

export interface SavedBenchmark {
  readonly target: string;
  readonly device: string;
  readonly runs: readonly SavedRun[];
}

/** @throws CliError when it is not a benchmark's JSON */
export function savedBenchmark(text: string, file: string): SavedBenchmark {
  const broken = (why: string) => new CliError(`${file} is no saved benchmark: ${why}`, 1);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw broken(error instanceof Error ? error.message : String(error));
  }
  const top = record(value);
  if (!Array.isArray(top.runs)) throw broken("it has no list of runs");
  const runs = top.runs.map((entry: unknown): SavedRun => {
    const { run, tok_s, decode_tok_s, accept } = record(entry);
    if (typeof run !== "string" || typeof tok_s !== "number") throw broken("a run has no name or no tok_s");
    const number = (x: unknown) => (typeof x === "number" ? x : 0);
    return { run, tokS: tok_s, decodeTokS: number(decode_tok_s), accept: number(accept) };
  });
  const shown = (x: unknown) => (typeof x === "string" ? x : "?");
  return { target: shown(top.target), device: shown(top.device), runs };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
