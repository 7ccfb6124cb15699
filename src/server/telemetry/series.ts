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
  private readonly counts: number[];
  private sum = 0;
  private count = 0;

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
    let below = 0;
    return [
      ...this.bounds.map((bound, i) => {
        below += this.counts[i] ?? 0;
        return sample(`${name}_bucket`, { ...labels, le: String(bound) }, below);
      }),
      sample(`${name}_bucket`, { ...labels, le: "+Inf" }, this.count),
      sample(`${name}_sum`, labels, this.sum),
      sample(`${name}_count`, labels, this.count),
    ];
  }
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

function withHead<T>({ name, help, type }: Family<T>, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
}

function sample(name: string, labels: Labels, value: number): string {
  const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escaped(text)}"`);
  return `${name}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${value}`;
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
