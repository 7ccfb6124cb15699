/**
 * Measures what verify forwards, drafts and rounds cost on this machine (calibration.md §2). Points are visited in a
 * fixed shuffled order and in two passes, so that heat and clock ramps do not lean on the wide ones; medians, and a
 * second look at points that scatter. A measurement that fails is left out and reported: nothing here throws.
 */
import { Bench, type BenchOptions, ITERS, point } from "./calibration-bench.ts";
import type { CalibrationEntry } from "./calibration-store.ts";
import { curveOf, interpolate } from "./curve.ts";

/** Each closure does the work once, evaluated to the end, with kernels as in production and fresh distinct token ids. */
export interface CalibrationWork {
  /** One verify forward of `width` rows with the tap at depth 512, then trimmed away. */
  measureVerify(width: number): void;
  /** One draft round that reads `cap` positions. */
  measureDraft(cap: number): void;
  /** A whole greedy round of `cap` drafts as the loop runs it. */
  measureRound(cap: number): void;
  /** `steps` plain steps as the loop runs them, each scheduled before the last one is read. */
  measurePlain(steps: number): void;
  /** As `measureVerify` at `depth` tokens of context. Absent: not supported by this target. */
  measureDepth?(width: number, depth: number): void;
}

export interface CalibrationPlan {
  /** Rows of a verify to measure. */
  readonly widths: readonly number[];
  /** Drafts to measure; empty: the drafter always runs whole, and 1 is measured as its constant. */
  readonly caps: readonly number[];
  /** The cap of the measured round: the overhead is what it takes beyond draft and verify. */
  readonly roundCap: number;
  /** Depths past 512 at which the depth slope is measured; empty: not at all. */
  readonly depths: readonly number[];
}

export interface CalibrationOptions extends BenchOptions {
  /** For `measured_at`. */
  readonly date?: () => Date;
}

export interface CalibrationResult {
  /** null when the verify or the drafter curve could not be measured: use the fallback caps. */
  readonly entry: CalibrationEntry | null;
  /** What failed, for the log. */
  readonly problems: readonly string[];
}

/** Plain steps that are timed together: alone, one would wait for what the loop hides behind the next. */
const PLAIN_STEPS = 4;
/** Context at which curves are measured. */
export const CALIBRATION_DEPTH = 512;
/** Total rows worth measuring: kernels change behaviour near these (calibration.md §2). */
const ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64];

/** The usual plan: verify rows up to `maxBatch` rows of full drafts, every cap, depth slopes where the target can. */
export function calibrationPlan(options: {
  readonly maxCap: number;
  readonly maxBatch: number;
  /** The drafter's cost does not depend on the cap (DFlash). */
  readonly wholeBlock: boolean;
  readonly depths: readonly number[];
}): CalibrationPlan {
  const { maxCap, maxBatch, wholeBlock, depths } = options;
  const own = Array.from({ length: maxCap + 1 }, (_, i) => i + 1);
  const rows = new Set([...(wholeBlock ? [] : own), ...ROWS.filter((r) => r <= maxBatch * (maxCap + 1)), maxCap + 1]);
  return {
    widths: [...rows].sort((a, b) => a - b),
    caps: wholeBlock ? [] : own.slice(0, maxCap),
    roundCap: Math.min(2, maxCap),
    depths,
  };
}

export async function calibrate(
  work: CalibrationWork,
  plan: CalibrationPlan,
  options: CalibrationOptions = {},
): Promise<CalibrationResult> {
  const bench = new Bench(options);
  const wholeBlock = plan.caps.length === 0;
  const points = [
    ...plan.widths.map((width) => point(`verify ${width}`, () => work.measureVerify(width))),
    ...(wholeBlock ? [1] : plan.caps).map((cap) => point(`drafter ${cap}`, () => work.measureDraft(cap))),
    point(`round ${plan.roundCap}`, () => work.measureRound(plan.roundCap)),
    point("plain", () => work.measurePlain(PLAIN_STEPS)),
  ];
  await bench.measure(points);
  const verify = bench.curve("verify");
  const drafter = bench.curve("drafter");
  if (verify === null || drafter === null) return { entry: null, problems: bench.problems };

  const depth = await measureDepths(bench, work, plan, verify);
  const { roundCap } = plan;
  const round = bench.median(`round ${roundCap}`);
  const explained =
    interpolate(curveOf(drafter), wholeBlock ? 1 : roundCap) + interpolate(curveOf(verify), roundCap + 1);
  const plain = bench.median("plain");
  const entry: CalibrationEntry = {
    verify,
    drafter: wholeBlock ? (drafter[1] as number) : drafter,
    overhead: round === null ? 0 : Math.max(0, round - explained),
    ...(plain === null ? {} : { plain: plain / PLAIN_STEPS }),
    ...(depth === null ? {} : { verify_depth: depth }),
    measured_at: (options.date?.() ?? new Date()).toISOString(),
    iters: ITERS,
    spread: bench.spreads(),
  };
  return { entry, problems: bench.problems };
}

/** Extra ms per token of context past `CALIBRATION_DEPTH`: least squares through the verify curve itself. */
async function measureDepths(
  bench: Bench,
  work: CalibrationWork,
  plan: CalibrationPlan,
  verify: Readonly<Record<string, number>>,
): Promise<NonNullable<CalibrationEntry["verify_depth"]> | null> {
  if (plan.depths.length === 0) return null;
  const d0 = CALIBRATION_DEPTH;
  const { measureDepth } = work;
  if (measureDepth === undefined) return { d0, unsupported: true };
  const top = Math.max(...plan.widths);
  const widths = [1, 2, 4, 8, 16].filter((width) => width <= top);
  // By depth: filling a cache costs more than a few forwards.
  for (const depth of plan.depths) {
    const points = widths.map((width) => point(`depth ${depth} ${width}`, () => measureDepth.call(work, width, depth)));
    await bench.measure(points, 1);
  }
  const base = curveOf(verify);
  const slope: Record<string, number> = {};
  for (const width of widths) {
    let xy = 0;
    let xx = 0;
    for (const depth of plan.depths) {
      const ms = bench.median(`depth ${depth} ${width}`);
      if (ms === null) continue;
      xy += (depth - d0) * (ms - interpolate(base, width));
      xx += (depth - d0) ** 2;
    }
    if (xx > 0) slope[width] = Math.max(0, xy / xx);
  }
  return Object.keys(slope).length === 0 ? { d0, unsupported: true } : { d0, depths: [...plan.depths], slope };
}

/** The cap where nothing could be measured. `maxCap`: most drafts that the drafter can give. */
export function fallbackCap(mode: "dspark" | "dflash", maxCap: number): number {
  return mode === "dflash" ? maxCap : Math.min(2, maxCap);
}
