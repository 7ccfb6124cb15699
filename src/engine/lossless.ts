/**
 * Asks a loaded engine whether what it wrote is what plain decoding would have written (decoding.md §10): by reading a
 * text again one token a forward, and by comparing runs of one prompt, with the margins where they part.
 */
import {
  type Arm,
  compareArms,
  type Divergence,
  type DivergenceKind,
  type Remeasured,
  type ReplayResult,
  replayCheck,
  TIE_ULPS,
  ulp,
  type Verdict,
} from "../decoding/verdict.ts";
import type { EngineClient } from "./client.ts";
import type { LogitDtype, ReplayReport, ReplayStep, SamplingParams, TokenLogprob } from "./protocol.ts";

export type { Divergence, DivergenceKind, ReplayResult, Verdict };

/** What is enough of `topLogprobs` for the evidence of a run. */
export const EVIDENCE_LOGPROBS = 2;

/** One run of a prompt, as it was recorded. */
export interface RecordedRun {
  readonly label: string;
  readonly promptIds: readonly number[] | Int32Array;
  readonly ids: readonly number[];
  /** With at least two alternatives for each id; null: not recorded. */
  readonly logprobs: readonly TokenLogprob[] | null;
}

/** A token that plain decoding would not have chosen, and whether floating point excuses it. */
export interface Mismatch extends ReplayStep {
  readonly index: number;
  readonly token: number;
  readonly kind: DivergenceKind;
}

export interface ReplayedRun extends ReplayResult {
  /** In order. */
  readonly mismatches: readonly Mismatch[];
  /** Smallest distance of the best from the second best logit: how near the text came to a tie. */
  readonly smallestGap: number | null;
  /** No mismatch of kind `fail`. */
  readonly lossless: boolean;
}

export interface ReplayOptions {
  /** As the text was chosen by; sampled text needs its seed. */
  readonly sampling: SamplingParams;
  /** The backend's bits depend on how many rows a forward has (Metal). */
  readonly inexactCaches: boolean;
  readonly signal?: AbortSignal;
}

/** Reads `ids` again behind the prompt. @throws EngineError */
export async function replayRun(
  engine: EngineClient,
  { promptIds, ids }: Pick<RecordedRun, "promptIds" | "ids">,
  { sampling, inexactCaches, signal }: ReplayOptions,
): Promise<ReplayedRun> {
  const { steps, dtype } = await engine.replay({ id: freshId(), promptIds, ids, sampling }, signal);
  const remaining = [...steps];
  const result = await replayCheck(ids, () => {
    const step = remaining.shift();
    return step === undefined ? { argmax: -1, gap: 0 } : { argmax: step.choice, gap: Math.abs(step.deficit) };
  });
  const mismatches = steps.flatMap((step, index): Mismatch[] => {
    const token = ids[index] ?? -1;
    if (step.choice === token) return [];
    const tie = Math.abs(step.deficit) <= TIE_ULPS * ulp(step.top, dtype);
    return [{ ...step, index, token, kind: tie ? "tie" : inexactCaches ? "drift" : "fail" }];
  });
  const smallestGap = steps.length === 0 ? null : Math.min(...steps.map(({ gap }) => gap));
  return { ...result, mismatches, smallestGap, lossless: mismatches.every(({ kind }) => kind !== "fail") };
}

/**
 * Compares greedy runs of one prompt with the first of them.
 * @param inexactCaches the backend's bits depend on how many rows a forward has (Metal)
 * @throws EngineError
 */
export async function compareRuns(
  engine: EngineClient,
  runs: readonly RecordedRun[],
  inexactCaches: boolean,
  signal?: AbortSignal,
): Promise<Verdict> {
  const promptIds = runs[0]?.promptIds ?? [];
  const bare = runs.map(({ label, ids }): Arm => ({ label, ids, inexactCaches }));
  const parted = compareArms(bare, { dtype: "float32" }).divergences.filter(({ lengthOnly }) => !lengthOnly);
  const measured = new Map<number, Remeasured>();
  let dtype: LogitDtype = "float32";
  for (const { arm, firstDiff, referenceToken, armToken } of parted) {
    const shared = runs[arm]?.ids.slice(0, firstDiff) ?? [];
    const before = [...promptIds, ...shared.slice(0, -1)];
    const ask = (token: number) => {
      const ids = [...shared.slice(-1), token];
      return engine.replay({ id: freshId(), promptIds: before, ids, sampling: GREEDY }, signal);
    };
    const reference = await ask(referenceToken ?? 0);
    const other = await ask(armToken ?? 0);
    dtype = reference.dtype;
    measured.set(arm, measuredFrom(reference, other));
  }
  const arms = runs.map(({ label, ids, logprobs }, index): Arm => {
    if (logprobs === null) return { label, ids, inexactCaches };
    // Log-probabilities have lost the size of the logits, which says how coarse their bits are.
    const top = measured.get(index)?.referenceLogit ?? [...measured.values()][0]?.referenceLogit ?? 0;
    return { label, ids, inexactCaches, evidence: logprobs.map((entry) => evidenceFrom(entry, top)) };
  });
  const places = [...parted];
  return compareArms(arms, {
    dtype,
    remeasure: () => measured.get(places.shift()?.arm ?? -1) ?? { referenceLogit: 0, armLogit: 0, top2Margin: 0 },
  });
}

const GREEDY: SamplingParams = {
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

function measuredFrom(reference: ReplayReport, other: ReplayReport): Remeasured {
  const [ours, theirs] = [reference.steps.at(-1), other.steps.at(-1)];
  return {
    referenceLogit: (ours?.top ?? 0) - (ours?.deficit ?? 0),
    armLogit: (theirs?.top ?? 0) - (theirs?.deficit ?? 0),
    top2Margin: ours?.gap ?? 0,
  };
}

/** Place of the token among the raw logits of the row that chose it; exact up to the alternatives that were recorded. */
export function rankOf({ logprob, top }: TokenLogprob): number {
  return 1 + top.filter(([, value]) => value > logprob).length;
}

function evidenceFrom(entry: TokenLogprob, logit: number) {
  const { logprob, top } = entry;
  return { rank: rankOf(entry), gap: (top[0]?.[1] ?? logprob) - (top[1]?.[1] ?? Number.NEGATIVE_INFINITY), top: logit };
}

function freshId(): string {
  return crypto.getRandomValues(Buffer.alloc(4)).toString("hex");
}
