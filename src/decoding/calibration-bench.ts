/**
 * Timing of many small pieces of work: warm-up, medians, a fixed shuffled order in two passes so that heat and clock
 * ramps do not lean on some of them, a second look at what scatters, and a limit on the whole. Work that throws is left
 * out and reported.
 */

export interface BenchOptions {
  /** Milliseconds, monotonic. */
  readonly now?: () => number;
  /** Most ms for all of it; points that do not fit are left out. */
  readonly budgetMs?: number;
  /** Called between points, e.g. to let messages in; may throw to give up (as any failure, it costs only the rest). */
  readonly between?: (done: number, of: number) => Promise<void> | void;
}

export interface Point {
  readonly name: string;
  readonly run: () => void;
  readonly samples: number[];
}

const WARMUP = 3;
const PASSES = 2;
const ITERS_PER_PASS = 4;
/** Timed runs of a point. */
export const ITERS = PASSES * ITERS_PER_PASS;
/** A point may take so long per pass: slow models are measured by fewer runs. */
const PASS_MS_MAX = 400;
const SPREAD_MAX = 0.15;
const BUDGET_MS = 60_000;
const SHUFFLE_SEED = 1234;

export function point(name: string, run: () => void): Point {
  return { name, run, samples: [] };
}

export class Bench {
  readonly problems: string[] = [];
  private readonly medians = new Map<string, number>();
  private readonly spread = new Map<string, number>();
  private readonly now: () => number;
  private readonly deadline: number;

  constructor(private readonly options: BenchOptions) {
    this.now = options.now ?? (() => performance.now());
    this.deadline = this.now() + (options.budgetMs ?? BUDGET_MS);
  }

  async measure(points: readonly Point[], passes = PASSES): Promise<void> {
    const failed = new Set<Point>();
    const order = shuffled(points);
    for (let pass = 0; pass < passes; pass++) {
      for (const [i, point] of order.entries()) {
        if (failed.has(point)) continue;
        if (this.now() > this.deadline) {
          if (point.samples.length === 0) this.fail(failed, point, "no time left");
          continue;
        }
        try {
          await this.options.between?.(pass * order.length + i, passes * order.length);
          this.sample(point, point.samples.length === 0 ? WARMUP : 1);
        } catch (error) {
          this.fail(failed, point, error instanceof Error ? error.message : String(error));
        }
      }
    }
    for (const point of order) if (!failed.has(point)) this.settle(point);
  }

  private fail(failed: Set<Point>, point: Point, reason: string): void {
    failed.add(point);
    this.problems.push(`${point.name}: ${reason}`);
  }

  /** A few unmeasured runs, then up to `ITERS_PER_PASS` timed ones. */
  private sample(point: Point, warmup: number): void {
    const start = this.now();
    for (let i = 0; i < warmup && this.now() - start <= PASS_MS_MAX; i++) point.run();
    const timing = this.now();
    for (let i = 0; i < ITERS_PER_PASS && (i === 0 || this.now() - timing < PASS_MS_MAX); i++) {
      const before = this.now();
      point.run();
      point.samples.push(this.now() - before);
    }
  }

  private settle(point: Point): void {
    let best = summary(point.samples);
    if (best.spread > SPREAD_MAX && this.now() < this.deadline) {
      const again: Point = { ...point, samples: [] };
      try {
        for (let pass = 0; pass < PASSES; pass++) this.sample(again, 1);
        const second = summary(again.samples);
        if (second.median < best.median) best = second;
      } catch (error) {
        // The first look stands.
        this.problems.push(`${point.name}, again: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    this.medians.set(point.name, best.median);
    this.spread.set(point.name, best.spread);
  }

  median(name: string): number | null {
    return this.medians.get(name) ?? null;
  }

  /** All points called `<prefix> <key>`; null when there is none. */
  curve(prefix: string): Record<string, number> | null {
    const points: Record<string, number> = {};
    for (const [name, ms] of this.medians)
      if (name.startsWith(`${prefix} `)) points[name.slice(prefix.length + 1)] = ms;
    return Object.keys(points).length === 0 ? null : points;
  }

  spreads(): Record<string, number> {
    return Object.fromEntries([...this.spread].map(([name, x]) => [name, Math.round(x * 1000) / 1000]));
  }
}

/** Median and interquartile range over median. */
function summary(samples: readonly number[]): { median: number; spread: number } {
  const sorted = [...samples].sort((a, b) => a - b);
  const at = (share: number) => {
    const place = share * (sorted.length - 1);
    const low = sorted[Math.floor(place)] as number;
    const high = sorted[Math.ceil(place)] as number;
    return low + (high - low) * (place - Math.floor(place));
  };
  const median = at(0.5);
  return { median, spread: median > 0 ? (at(0.75) - at(0.25)) / median : 0 };
}

/** The same order in every run (Fisher and Yates; Numerical Recipes' ranqd1 generator). */
function shuffled<T>(list: readonly T[]): T[] {
  const out = [...list];
  let state = SHUFFLE_SEED;
  for (let i = out.length - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 2 ** 32) * (i + 1));
    [out[i], out[j]] = [out[j] as T, out[i] as T];
  }
  return out;
}
