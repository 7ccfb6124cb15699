/** The verdict of `--verify-lossless` for one answer, in words and as JSON (decoding.md §10). */
import type { EngineClient } from "../engine/client.ts";
import { type Mismatch, type ReplayedRun, type ReplayOptions, rankOf, replayRun } from "../engine/lossless.ts";
import type { ModelInfo, TokenLogprob } from "../engine/protocol.ts";
import { usageError } from "./errors.ts";

/** One answer, with what its own rounds said of its tokens. */
export interface CheckedRun {
  readonly promptIds: readonly number[] | Int32Array;
  readonly ids: readonly number[];
  /** Of each id; null: not recorded, or sampled, where any rank may be drawn. */
  readonly logprobs: readonly TokenLogprob[] | null;
}

export interface LosslessVerdict {
  readonly replay: ReplayedRun;
  /** Tokens that were not the first choice of the row that committed them: wrong in any mode. */
  readonly misranked: readonly { readonly index: number; readonly token: number; readonly rank: number }[];
  readonly lossless: boolean;
}

/** Sampling without a seed has no text to compare with. @throws CliError (usage) */
export function checkable(temperature: number, seed: number | null): void {
  if (temperature > 0 && seed === null) {
    throw usageError("--verify-lossless needs --temperature 0 or a --seed: without a seed no two runs draw alike");
  }
}

/** On Metal the bits of a row depend on how many rows its forward has; on the CPU they do not. */
export function inexactCaches({ backend }: Pick<ModelInfo, "backend">): boolean {
  return backend.startsWith("metal");
}

/** @throws EngineError */
export async function checkLossless(
  engine: EngineClient,
  run: CheckedRun,
  options: ReplayOptions,
): Promise<LosslessVerdict> {
  const replay = await replayRun(engine, run, options);
  const misranked = (run.logprobs ?? []).flatMap((entry, index) => {
    const rank = rankOf(entry);
    return rank === 1 ? [] : [{ index, token: entry.id, rank }];
  });
  return { replay, misranked, lossless: replay.lossless && misranked.length === 0 };
}

/** One line, and one more for each of the first differences. */
export function losslessLines({ replay, misranked, lossless }: LosslessVerdict, ranked: boolean): string[] {
  const { tokens, argmaxEqual, mismatches, smallestGap } = replay;
  const parts = [`${argmaxEqual} of ${tokens} tokens are what plain decoding chooses`];
  if (ranked) parts.push(`${tokens - misranked.length} of ${tokens} ranked 1 in their own rounds`);
  if (smallestGap !== null) parts.push(`smallest margin ${smallestGap.toPrecision(3)}`);
  return [
    `lossless: ${lossless ? "yes" : "NO"} · ${parts.join(" · ")}`,
    ...mismatches.slice(0, SHOWN_MAX).map(mismatchLine),
    ...misranked
      .slice(0, SHOWN_MAX)
      .map(({ index, token, rank }) => `  token ${index} (id ${token}) was committed as choice number ${rank}`),
  ];
}

const SHOWN_MAX = 5;
const REASONS = {
  tie: "a tie of floating point",
  drift: "caches that other widths have built",
  fail: "a fault",
} as const;

function mismatchLine({ index, token, choice, rank, deficit, kind }: Mismatch): string {
  return `  token ${index}: id ${token} is choice number ${rank}, ${deficit.toPrecision(3)} below id ${choice}: ${REASONS[kind]}`;
}

export function losslessJson({ replay, misranked, lossless }: LosslessVerdict) {
  return {
    lossless,
    tokens: replay.tokens,
    argmax_equal: replay.argmaxEqual,
    max_gap_at_mismatch: replay.maxGapAtMismatch,
    smallest_margin: replay.smallestGap,
    mismatches: replay.mismatches.map(({ index, token, choice, rank, deficit, kind }) => ({
      ...{ index, token, choice, rank, gap: deficit, kind },
    })),
    misranked,
  };
}
