/**
 * Counters, gauges and histograms with labels, and their text in Prometheus' exposition format 0.0.4. A series is looked
 * up once by whoever feeds it and then costs an addition a time.
 */

type Labels = Readonly<Record<string, string>>;

export interface Counter {
  value: number;
}

interface Family<T> {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "histogram";
  readonly series: Map<string, { readonly labels: Labels; readonly cell: T }>;
}

export class CounterFamily {
  private readonly family: Family<Counter>;

  constructor(name: string, help: string) {
    this.family = { name, help, type: "counter", series: new Map() };
  }

  of(labels: Labels): Counter {
    return cellOf(this.family, labels, () => ({ value: 0 }));
  }

  /** Sum of all series. */
  get total(): number {
    let sum = 0;
    for (const { cell } of this.family.series.values()) sum += cell.value;
    return sum;
  }

  lines(): string[] {
    const { name, series } = this.family;
    return withHead(
      this.family,
      [...series.values()].map(({ labels, cell }) => sample(name, labels, cell.value)),
    );
  }
}

export class Histogram {
  /** Of each bucket alone; they are summed up when they are told. */
  readonly counts: number[];
  sum = 0;
  count = 0;

  /** @param bounds upper bounds, ascending; the last bucket is everything */
  constructor(readonly bounds: readonly number[]) {
    this.counts = new Array<number>(bounds.length).fill(0);
  }

  observe(value: number, times = 1): void {
    this.sum += value * times;
    this.count += times;
    const { bounds, counts } = this;
    for (let i = 0; i < bounds.length; i++) {
      if (value > (bounds[i] ?? 0)) continue;
      counts[i] = (counts[i] ?? 0) + times;
      return;
    }
  }

  lines(name: string, labels: Labels): string[] {
    return bucketLines(name, labels, this);
  }
}

/** Observations that were counted elsewhere. */
export interface CountedHistogram {
  readonly bounds: readonly number[];
  /** Of each bucket alone; the last, if there is one more than bounds, holds the rest. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/** Their lines, as those of a family with one series and no labels. */
export function countedHistogram(name: string, help: string, counted: CountedHistogram): string[] {
  const count = counted.counts.reduce((all, one) => all + one, 0);
  return withHead({ name, help, type: "histogram" }, bucketLines(name, {}, { ...counted, count }));
}

/** The lines of a total that is kept elsewhere. */
export function countedTotal(name: string, help: string, total: number): string[] {
  return withHead({ name, help, type: "counter" }, [sample(name, {}, total)]);
}

function bucketLines(
  name: string,
  labels: Labels,
  { bounds, counts, sum, count }: CountedHistogram & { readonly count: number },
): string[] {
  let below = 0;
  return [
    ...bounds.map((bound, i) => {
      below += counts[i] ?? 0;
      return sample(`${name}_bucket`, { ...labels, le: String(bound) }, below);
    }),
    sample(`${name}_bucket`, { ...labels, le: "+Inf" }, count),
    sample(`${name}_sum`, labels, sum),
    sample(`${name}_count`, labels, count),
  ];
}

export class HistogramFamily {
  private readonly family: Family<Histogram>;

  constructor(
    name: string,
    help: string,
    private readonly bounds: readonly number[],
  ) {
    this.family = { name, help, type: "histogram", series: new Map() };
  }

  of(labels: Labels): Histogram {
    return cellOf(this.family, labels, () => new Histogram(this.bounds));
  }

  lines(): string[] {
    const { name, series } = this.family;
    return withHead(
      this.family,
      [...series.values()].flatMap(({ labels, cell }) => cell.lines(name, labels)),
    );
  }
}

/** A gauge's lines; a null value has no line, and without any there is no gauge. */
export function gauge(name: string, help: string, values: readonly (readonly [Labels, number | null])[]): string[] {
  const known = values.flatMap(([labels, value]) => (value === null ? [] : [sample(name, labels, value)]));
  return known.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} gauge`, ...known];
}

function cellOf<T>(family: Family<T>, labels: Labels, make: () => T): T {
  const key = JSON.stringify(labels);
  const found = family.series.get(key);
  if (found !== undefined) return found.cell;
  const cell = make();
  family.series.set(key, { labels, cell });
  return cell;
}

function withHead({ name, help, type }: Omit<Family<unknown>, "series">, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
}

function sample(name: string, labels: Labels, value: number): string {
  const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escaped(text)}"`);
  return `${name}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${value}`;
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
