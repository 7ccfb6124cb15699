/** What the grammar engine did, for `/metrics`: plain numbers that pass between threads (structured-output.md §7). */

/** A histogram as Prometheus counts: `counts[i]` are observations ≤ `bounds[i]`, not cumulated; the last holds the rest. */
export interface Histogram {
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
  readonly sum: number;
}

export interface GrammarMetrics {
  /** Seconds of each compile. */
  readonly compileSeconds: Histogram;
  /** Seconds that the engine thread waited for the masks of one round of one row. */
  readonly maskSeconds: Histogram;
  readonly restarts: number;
  readonly cacheHits: number;
}

/** Ours: around the measured 0.1–0.7 s of a compile and 20 µs of a mask. */
const COMPILE_BOUNDS = [0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5];
const MASK_BOUNDS = [0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.005, 0.02];

export class GrammarMeter {
  private readonly compile = new Observations(COMPILE_BOUNDS);
  private readonly mask = new Observations(MASK_BOUNDS);
  private restarts = 0;
  private hits = 0;

  compiled(ms: number): void {
    this.compile.add(ms / 1000);
  }

  masked(ms: number): void {
    this.mask.add(ms / 1000);
  }

  restarted(): void {
    this.restarts++;
  }

  hit(): void {
    this.hits++;
  }

  /** A snapshot. */
  get metrics(): GrammarMetrics {
    return {
      compileSeconds: this.compile.histogram,
      maskSeconds: this.mask.histogram,
      restarts: this.restarts,
      cacheHits: this.hits,
    };
  }
}

class Observations {
  private readonly counts: number[];
  private sum = 0;

  constructor(private readonly bounds: readonly number[]) {
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  add(value: number): void {
    const at = this.bounds.findIndex((bound) => value <= bound);
    const index = at < 0 ? this.bounds.length : at;
    this.counts[index] = (this.counts[index] ?? 0) + 1;
    this.sum += value;
  }

  get histogram(): Histogram {
    return { bounds: this.bounds, counts: [...this.counts], sum: this.sum };
  }
}
