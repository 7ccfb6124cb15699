/**
 * Did two ways of decoding give the same text, and if not, why (decoding.md §10). Every arm is compared with the first;
 * where they part, the margins there say whether floating point may be excused. Pure: it works on what was recorded.
 */
import type { TokenEvidence } from "./token-evidence.ts";

export type LogitDtype = "float32" | "float16" | "bfloat16";

/** One greedy run of the same prompt. */
export interface Arm {
  /** Mode and options, e.g. "dspark cap 4". */
  readonly label: string;
  readonly ids: ArrayLike<number>;
  /** For each id; absent when not recorded. */
  readonly evidence?: readonly TokenEvidence[];
  /** Its caches were built by forwards of several rows, on a backend where that changes bits (Metal). */
  readonly inexactCaches: boolean;
}

/** Logits of both tokens at the first difference, from a clean cache; the caches that differed are gone. */
export interface Remeasured {
  readonly referenceLogit: number;
  readonly armLogit: number;
  /** Best less second best. */
  readonly top2Margin: number;
}

export interface VerdictOptions {
  readonly dtype: LogitDtype;
  /** Prefills all but the last of `shared`, feeds that one alone, and reads the logits. */
  readonly remeasure?: (shared: readonly number[], referenceToken: number, armToken: number) => Remeasured;
}

/** tie: floating point may be excused; drift: caches of other bits may be; fail: nothing may. */
export type DivergenceKind = "tie" | "drift" | "fail";

export interface Divergence {
  /** Index of the arm; 0 is the reference. */
  readonly arm: number;
  readonly label: string;
  readonly firstDiff: number;
  /** One text is the beginning of the other: not counted as a difference. */
  readonly lengthOnly: boolean;
  /** null where the text has ended. */
  readonly referenceToken: number | null;
  readonly armToken: number | null;
  /** null when `lengthOnly`. */
  readonly kind: DivergenceKind | null;
  /** Smaller of the recorded top-2 gaps of both arms at `firstDiff`. */
  readonly gap?: number;
  /** Difference of both tokens' logits, `top2Margin` and the logits [reference, arm] from a clean cache. */
  readonly margin?: number;
  readonly top2Margin?: number;
  readonly logits?: readonly [number, number];
  /** True: `margin` is from a clean cache, not from the caches that differed. */
  readonly approximate: boolean;
}

/** A committed token that was not its target's first choice: wrong in any mode. */
export interface Misranked {
  readonly arm: number;
  readonly label: string;
  readonly index: number;
  readonly token: number;
  readonly rank: number;
}

export interface Verdict {
  readonly comparable: boolean;
  readonly identical: boolean;
  readonly identicalWhereOverlapping: boolean;
  /** Label of the first arm. */
  readonly reference: string | null;
  readonly divergences: readonly Divergence[];
  readonly misranked: readonly Misranked[];
  /** No misranked token and no divergence of kind `fail`. */
  readonly lossless: boolean;
  /** A sentence for people. */
  readonly detail: string;
}

/** Two logits this near are equal for all that floating point says. */
export const TIE_ULPS = 4;
/** Stored bits of the significand. */
const FRACTION_BITS: Readonly<Record<LogitDtype, number>> = { float32: 23, float16: 10, bfloat16: 7 };

/** Distance of neighbouring numbers of a dtype at the magnitude of x. */
export function ulp(x: number, dtype: LogitDtype): number {
  const magnitude = Math.abs(x);
  if (magnitude === 0 || !Number.isFinite(magnitude)) return 0;
  return 2 ** (Math.floor(Math.log2(magnitude)) - FRACTION_BITS[dtype]);
}

export function compareArms(arms: readonly Arm[], options: VerdictOptions): Verdict {
  const misranked = arms.flatMap(misrankedTokens);
  const [reference, ...others] = arms;
  if (reference === undefined || others.length === 0) {
    return {
      comparable: false,
      identical: false,
      identicalWhereOverlapping: false,
      reference: reference?.label ?? null,
      divergences: [],
      misranked,
      lossless: misranked.length === 0,
      detail: "Fewer than two runs: nothing to compare.",
    };
  }
  const divergences = others
    .map((arm, i) => divergenceOf(reference, arm, i + 1, options))
    .filter((divergence) => divergence !== null);
  const real = divergences.filter(({ lengthOnly }) => !lengthOnly);
  return {
    comparable: true,
    identical: divergences.length === 0,
    identicalWhereOverlapping: real.length === 0,
    reference: reference.label,
    divergences,
    misranked,
    lossless: misranked.length === 0 && real.every(({ kind }) => kind !== "fail"),
    detail: describe(divergences, misranked),
  };
}

function misrankedTokens({ label, ids, evidence = [] }: Arm, arm: number): Misranked[] {
  return evidence.flatMap(({ rank }, index) =>
    rank === 1 ? [] : [{ arm, label, index, token: ids[index] as number, rank }],
  );
}

function divergenceOf(reference: Arm, arm: Arm, index: number, options: VerdictOptions): Divergence | null {
  const overlap = Math.min(reference.ids.length, arm.ids.length);
  let firstDiff = 0;
  while (firstDiff < overlap && reference.ids[firstDiff] === arm.ids[firstDiff]) firstDiff++;
  if (firstDiff === reference.ids.length && firstDiff === arm.ids.length) return null;
  const [referenceToken = null, armToken = null] = [reference.ids[firstDiff], arm.ids[firstDiff]];
  const found = { arm: index, label: arm.label, firstDiff, referenceToken, armToken };
  if (referenceToken === null || armToken === null) {
    return { ...found, lengthOnly: true, kind: null, approximate: false };
  }
  const witnesses = [reference.evidence?.[firstDiff], arm.evidence?.[firstDiff]].filter((x) => x !== undefined);
  const kind = classify(witnesses, arm.inexactCaches || reference.inexactCaches, options.dtype);
  const clean = options.remeasure?.(Array.from(reference.ids).slice(0, firstDiff), referenceToken, armToken);
  return {
    ...found,
    lengthOnly: false,
    kind,
    ...(witnesses.length === 0 ? {} : { gap: Math.min(...witnesses.map(({ gap }) => gap)) }),
    ...(clean === undefined
      ? {}
      : {
          margin: Math.abs(clean.referenceLogit - clean.armLogit),
          top2Margin: clean.top2Margin,
          logits: [clean.referenceLogit, clean.armLogit] as const,
        }),
    approximate: clean !== undefined,
  };
}

function classify(witnesses: readonly TokenEvidence[], inexactCaches: boolean, dtype: LogitDtype): DivergenceKind {
  if (witnesses.some(({ rank }) => rank !== 1)) return "fail";
  if (witnesses.some(({ gap, top }) => gap <= TIE_ULPS * ulp(top, dtype))) return "tie";
  return inexactCaches ? "drift" : "fail";
}

function describe(divergences: readonly Divergence[], misranked: readonly Misranked[]): string {
  const [wrong] = misranked;
  if (wrong !== undefined) {
    return `${wrong.label} committed token ${wrong.token} at ${wrong.index}, its target's choice number ${wrong.rank}: not lossless.`;
  }
  const real = divergences.filter(({ lengthOnly }) => !lengthOnly);
  if (real.length === 0) {
    return divergences.length === 0
      ? "Every arm produced the same tokens."
      : "Every arm produced the same tokens as far as both go; only the lengths differ.";
  }
  const reasons = { tie: "a tie of floating point", drift: "caches of other bits", fail: "a fault" };
  return real
    .map(({ label, firstDiff, kind }) => `${label} differs from token ${firstDiff} on: ${reasons[kind ?? "fail"]}.`)
    .join(" ");
}

/** What a width-1 forward says of a token that was committed. */
export interface ReplayedStep {
  /** The token that the row would choose. */
  readonly argmax: number;
  /** Its logit less that of the committed token; 0 when they are the same. */
  readonly gap: number;
}

export interface ReplayResult {
  readonly tokens: number;
  readonly argmaxEqual: number;
  /** Largest gap among the tokens that differ; 0 when none does. */
  readonly maxGapAtMismatch: number;
}

/**
 * Feeds a committed text through steps of one row and compares each choice (`--verify-lossless`).
 * @param step feeds `fed` (null: nothing, the prompt is prefilled and its last row is asked) and judges `committed`
 */
export async function replayCheck(
  ids: ArrayLike<number>,
  step: (fed: number | null, committed: number) => ReplayedStep | Promise<ReplayedStep>,
): Promise<ReplayResult> {
  let argmaxEqual = 0;
  let maxGapAtMismatch = 0;
  for (let i = 0; i < ids.length; i++) {
    const committed = ids[i] as number;
    const { argmax, gap } = await step(i === 0 ? null : (ids[i - 1] as number), committed);
    if (argmax === committed) argmaxEqual++;
    else maxGapAtMismatch = Math.max(maxGapAtMismatch, gap);
  }
  return { tokens: ids.length, argmaxEqual, maxGapAtMismatch };
}
