/** The tables of `peers.ts`: times by side, ratios to ours, cost curves, and the figures with their verdicts. */
import type { Sample } from "../support/contender.ts";
import type { Rounds } from "../support/paired.ts";
import { type Spread, spread } from "../support/statistics.ts";
import { costOf, type Figure, type Measured, reaches, roundsOf } from "./figures.ts";
import { type Entry, entryName, OURS, Q4_0, Q4_1, type SideName } from "./plan.ts";

export interface TimesLine {
  readonly entry: string;
  readonly side: SideName;
  readonly cpu_ms: Spread;
  /** Absent where a side counts CPU time alone. */
  readonly wall_ms: Spread | null;
  /** Its times divided by ours of the same rotation; null for ours. */
  readonly cpu_ratio: Spread | null;
  readonly wall_ratio: Spread | null;
}

export function timesLines(entries: readonly Entry[], measured: Measured): TimesLine[] {
  return entries.flatMap((entry) => {
    const rounds = roundsOf(measured, entry);
    return entry.sides.map((side) => ({
      entry: entryName(entry),
      side,
      cpu_ms: times(rounds, side, "process_ns") as Spread,
      wall_ms: times(rounds, side, "wall_ns"),
      cpu_ratio: side === OURS ? null : ratios(rounds, side, "process_ns"),
      wall_ratio: side === OURS ? null : ratios(rounds, side, "wall_ns"),
    }));
  });
}

/** Rows of a forward in terms of one row, by side; empty where fewer than two row counts were measured. */
export function costCurves(entries: readonly Entry[], measured: Measured): Record<string, Record<string, Spread>> {
  const forwards = entries
    .filter(({ task, threads }) => task.kind === "rows" && task.context === 128 && threads === 1)
    .sort((a, b) => rowsOf(a) - rowsOf(b));
  const [one] = forwards;
  if (one === undefined) return {};
  const unit = roundsOf(measured, one);
  const curve = (side: SideName) =>
    forwards.map((entry) => [String(rowsOf(entry)), costOf(roundsOf(measured, entry), unit, side)] as const);
  return Object.fromEntries([OURS, Q4_1, Q4_0].map((side) => [side, Object.fromEntries(curve(side as SideName))]));
}

function rowsOf({ task }: Entry): number {
  return task.kind === "rows" ? task.rows : 0;
}

function times(rounds: Rounds, side: SideName, measure: string): Spread | null {
  const values = rounds.flatMap((round) => round[side]?.[measure] ?? []);
  return values.length === 0 ? null : spread(values.map((nanoseconds) => nanoseconds / 1e6));
}

function ratios(rounds: Rounds, side: SideName, measure: string): Spread | null {
  const values = rounds.flatMap((round) => {
    const [theirs, ours] = [round[side]?.[measure], round[OURS]?.[measure]];
    return theirs === undefined || ours === undefined ? [] : [theirs / ours];
  });
  return values.length === 0 ? null : spread(values);
}

export function printTimes(lines: readonly TimesLine[]): void {
  const header = ["task", "side", "CPU ms", "wall ms", "CPU / ours", "wall / ours"];
  const cells = lines.map((line) => [
    line.entry,
    line.side,
    shown(line.cpu_ms),
    shown(line.wall_ms),
    shown(line.cpu_ratio),
    shown(line.wall_ratio),
  ]);
  printColumns([header, ...cells]);
}

export function printCurves(curves: Readonly<Record<string, Readonly<Record<string, Spread>>>>): void {
  const counts = Object.keys(Object.values(curves)[0] ?? {});
  const cells = Object.entries(curves).map(([side, costs]) => [side, ...Object.values(costs).map(shown)]);
  printColumns([["rows / 1 row, CPU", ...counts], ...cells]);
}

export function printFigures(list: readonly Figure[]): void {
  const cells = list.map((figure) => [
    figure.name,
    `${shown(figure.value)} ${figure.unit}`,
    `${figure.sense === "at least" ? "≥" : "≤"} ${figure.must}: ${verdict(figure, figure.must)}`,
    `${figure.goal}: ${verdict(figure, figure.goal)}`,
  ]);
  printColumns([["figure", "median [p10 – p90]", "must", "goal"], ...cells]);
}

function verdict(figure: Figure, limit: number): string {
  return reaches(figure, limit) ? "reached" : "NOT REACHED";
}

export function printSample(title: string, sample: Sample): void {
  printColumns([[title, "MB"], ...Object.entries(sample).map(([name, bytes]) => [name, (bytes / 1e6).toFixed(1)])]);
}

function printColumns(table: readonly (readonly string[])[]): void {
  const widths = (table[0] ?? []).map((_, column) => Math.max(...table.map((line) => line[column]?.length ?? 0)));
  for (const line of table) {
    const padded = line.map((cell, column) => cell.padEnd(widths[column] ?? 0));
    console.log(`  ${padded.join("  ").trimEnd()}`);
  }
  console.log();
}

function shown(value: Spread | null): string {
  if (value === null) return "–";
  const digits = Math.abs(value.median) < 10 ? 2 : Math.abs(value.median) < 100 ? 1 : 0;
  const [median, p10, p90] = [value.median, value.p10, value.p90].map((number) => number.toFixed(digits));
  return `${median} [${p10} – ${p90}]`;
}
