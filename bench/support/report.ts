/** A benchmark's result: printed as lines with median and p10–p90, judged where there is a limit, written as JSON. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import type { Rounds } from "./paired.ts";
import type { Spread } from "./statistics.ts";

export interface Line {
  readonly name: string;
  readonly unit: "ns" | "µs" | "×" | "";
  readonly value: Spread;
  /** The median must not be above it; absent: shown for information. */
  readonly limit?: number;
}

const results = join(import.meta.dir, "../results");

/** Prints and writes `bench/results/<id>.json`. Returns whether every limit holds. */
export function report(id: string, lines: readonly Line[], rounds: Rounds): boolean {
  const machine = describeMachine();
  const judged = lines.map((line) => ({ ...line, holds: line.limit === undefined || line.value.median <= line.limit }));
  console.log(`${id}  (${rounds.length} rounds, median [p10 – p90]; ${machine.cpu}, ${machine.cores} cores)`);
  for (const { name, unit, value, limit, holds } of judged) {
    const verdict = limit === undefined ? "" : `  must be ≤ ${limit} ${unit}: ${holds ? "holds" : "FAILS"}`;
    const numbers = `${shown(value.median)} ${unit} [${shown(value.p10)} – ${shown(value.p90)}]`;
    console.log(`  ${name.padEnd(58)} ${numbers}${verdict}`);
  }
  writeResult(id, { machine, lines: judged, rounds });
  return judged.every(({ holds }) => holds);
}

/** With the family and model on Linux: a virtual machine's name for its processor may hide the generation. */
function cpuName(): string {
  const name = cpus()[0]?.model ?? "unknown";
  if (process.platform !== "linux") return name;
  const text = readFileSync("/proc/cpuinfo", "utf8");
  const [family, model] = ["cpu family", "model"].map((key) => new RegExp(`^${key}\\s*: (\\d+)$`, "m").exec(text)?.[1]);
  return family === undefined ? name : `${name} (family ${family}, model ${model})`;
}

/** What made the numbers, and how busy it was. */
export function describeMachine() {
  return {
    cpu: cpuName(),
    cores: cpus().length,
    platform: `${process.platform}-${process.arch}`,
    load_average: loadavg(),
    date: new Date().toISOString(),
  };
}

/** Writes `bench/results/<id>.json`. */
export function writeResult(id: string, content: Readonly<Record<string, unknown>>): void {
  mkdirSync(results, { recursive: true });
  writeFileSync(join(results, `${id}.json`), `${JSON.stringify({ id, ...content }, null, 1)}\n`);
}

function shown(value: number): string {
  return Math.abs(value) < 10 ? value.toFixed(3) : value.toFixed(1);
}
