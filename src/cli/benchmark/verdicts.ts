/**
 * Did every arm write what baseline wrote, and if not, where and by how much (decoding.md §10). Always by the ids of the
 * timed runs; with `--verify-lossless` also by a run that records its rows' alternatives, and by reading texts again.
 */
import {
  compareRuns,
  type Divergence,
  EVIDENCE_LOGPROBS,
  type RecordedRun,
  type ReplayedRun,
  type Verdict,
} from "../../engine/lossless.ts";
import { checkLossless } from "../lossless-report.ts";
import type { Arm } from "./arms.ts";
import { type BenchContext, type BenchPrompt, GREEDY, type Measured, measure, type Runs } from "./measure.ts";
import type { PromptName } from "./prompts.ts";

export interface ArmVerdict {
  /** Token ids equal to baseline's in every prompt and trial. */
  readonly identical: boolean;
  /** The first difference of each prompt that has one. */
  readonly differences: readonly (Divergence & { readonly prompt: PromptName })[];
  /** No difference and no rank that floating point does not excuse. */
  readonly lossless: boolean;
  /** Sums over the prompts; null: not asked for. */
  readonly replay: (Pick<ReplayedRun, "tokens" | "argmaxEqual" | "maxGapAtMismatch"> & { misranked: number }) | null;
}

export interface VerdictWishes {
  readonly inexactCaches: boolean;
  readonly verifyLossless: boolean;
  readonly onStep: (arm: Arm, prompt: PromptName) => void;
}

/** @throws EngineError */
export async function verdictsOf(
  context: BenchContext,
  runs: Runs,
  prompts: readonly BenchPrompt[],
  wishes: VerdictWishes,
): Promise<ReadonlyMap<Arm, ArmVerdict>> {
  const verdicts = new Map<Arm, ArmVerdict>();
  const [baseline] = runs.keys();
  if (baseline === undefined) return verdicts;
  for (const arm of runs.keys()) {
    const differences: ArmVerdict["differences"][number][] = [];
    let replay = wishes.verifyLossless ? { tokens: 0, argmaxEqual: 0, maxGapAtMismatch: 0, misranked: 0 } : null;
    let lossless = true;
    for (const { name, ids: promptIds } of prompts) {
      const reference = cell(runs, baseline, name)[0];
      if (reference === undefined) continue;
      const others = arm === baseline ? cell(runs, arm, name).slice(1) : cell(runs, arm, name);
      const odd = others.find(({ ids }) => !sameIds(ids, reference.ids)) ?? others[0];
      if (odd !== undefined) {
        const recorded = (label: string, { ids }: Measured): RecordedRun => ({ label, promptIds, ids, logprobs: null });
        const pair = [recorded(baseline.label, reference), recorded(arm.label, odd)];
        const verdict: Verdict = await compareRuns(context.engine, pair, wishes.inexactCaches, context.signal);
        differences.push(...verdict.divergences.map((difference) => ({ ...difference, prompt: name })));
        lossless &&= verdict.lossless;
      }
      if (replay === null) continue;
      wishes.onStep(arm, name);
      const checked = await checkedRun(context, promptIds, arm, wishes.inexactCaches);
      lossless &&= checked.lossless;
      replay = {
        tokens: replay.tokens + checked.replay.tokens,
        argmaxEqual: replay.argmaxEqual + checked.replay.argmaxEqual,
        maxGapAtMismatch: Math.max(replay.maxGapAtMismatch, checked.replay.maxGapAtMismatch),
        misranked: replay.misranked + checked.misranked.length,
      };
    }
    verdicts.set(arm, { identical: differences.length === 0, differences, lossless, replay });
  }
  return verdicts;
}

/** A run of its own: recording alternatives takes time. */
async function checkedRun(context: BenchContext, promptIds: readonly number[], arm: Arm, inexactCaches: boolean) {
  const { ids, logprobs } = await measure(context, promptIds, arm, EVIDENCE_LOGPROBS);
  const { engine, signal } = context;
  return checkLossless(engine, { promptIds, ids, logprobs }, { sampling: GREEDY, inexactCaches, signal });
}

function cell(runs: Runs, arm: Arm, prompt: PromptName): readonly Measured[] {
  return runs.get(arm)?.get(prompt) ?? [];
}

function sameIds(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, i) => id === b[i]);
}
