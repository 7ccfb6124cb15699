/**
 * The product on a CPU (TypeScript, FFI, MLX, the fused backend: steps as the engine runs them) against llama.cpp on the
 * same weights and in its best format, and against mlx-lm in float32; the hand-made forward on the same kernels shows what
 * graph and FFI cost. In strict turns, in an order that moves on by one side every rotation. See README.md.
 *
 * Usage: bun bench/cpu/peers.ts [--short] [--rounds N] [--minutes N]
 */
import { parseArgs } from "node:util";
import type { Sample } from "../support/contender.ts";
import { describeMachine, writeResult } from "../support/report.ts";
import { figures, type Measured, reaches } from "./figures.ts";
import { dose, type Entry, entryName, FULL, OURS, type Part, SHORT, type SideName } from "./plan.ts";
import { type Side, startSides } from "./sides.ts";
import { costCurves, printCurves, printFigures, printSample, printTimes, timesLines } from "./table.ts";

const { values: flags } = parseArgs({
  options: { short: { type: "boolean" }, rounds: { type: "string" }, minutes: { type: "string" } },
});
const rotations = Number(flags.rounds ?? 5);
/**
 * No part after the first begins, and no rotation of it, when the time is up: a busy machine takes several times as long.
 * One that has to make long sequences first needs half of the time for that.
 */
const minutes = Number(flags.minutes ?? 8);
if (!Number.isInteger(rotations) || rotations < 1) throw new RangeError("--rounds must be a positive integer");
if (!(minutes > 0)) throw new RangeError("--minutes must be positive");

function sideOf(name: SideName): Side {
  const side = sides.get(name);
  if (side === undefined) throw new RangeError(`there is no side ${name}`);
  return side;
}

/** One entry, its sides one after the other, beginning with another one every rotation. */
async function measureEntry(entry: Entry, rotation: number): Promise<Record<string, Sample>> {
  const samples: Record<string, Sample> = {};
  const { sides: names, task } = entry;
  for (let i = 0; i < names.length; i++) {
    const name = names[(i + rotation) % names.length] as SideName;
    samples[name] = await sideOf(name).measure(task, dose(entry, name));
  }
  return samples;
}

/** Makes the sequences of a part, and runs its short entries once for nothing: they get everything warm. */
async function prepare({ contexts, entries }: Part): Promise<void> {
  if (contexts.length > 0) {
    for (const [name, side] of sides) {
      const answer = await side.prepare({ kind: "prepare", contexts });
      if (name === OURS) Object.assign(memory, answer);
    }
  }
  for (const entry of entries) if (entry.task.kind !== "prefill") await measureEntry(entry, 0);
}

async function measurePart(part: Part, isFirst: boolean): Promise<void> {
  const elapsedMinutes = () => performance.now() / 60_000;
  const timeIsUp = (share = 1) => !isFirst && elapsedMinutes() >= minutes * share;
  if (timeIsUp(part.contexts.length > 0 ? 0.5 : 1)) {
    console.error(`${part.title}: left out, too little is left of the ${minutes} minutes`);
    return;
  }
  await prepare(part);
  for (let rotation = 0; rotation < rotations && !timeIsUp(); rotation++) {
    for (const entry of part.entries) {
      const name = entryName(entry);
      measured.set(name, [...(measured.get(name) ?? []), await measureEntry(entry, rotation)]);
    }
    console.error(`${part.title}: rotation ${rotation + 1} of ${rotations}, ${elapsedMinutes().toFixed(1)} minutes`);
  }
}

const parts = flags.short ? SHORT : FULL;
const sides = await startSides();
const memory: Record<string, number> = {};
const measured: Map<string, Record<string, Sample>[]> = new Map();
try {
  for (const [index, part] of parts.entries()) await measurePart(part, index === 0);
} finally {
  await Promise.all([...sides.values()].map((side) => side.stop()));
}

const machine = describeMachine();
const entries = parts.flatMap((part) => part.entries).filter((entry) => measured.has(entryName(entry)));
const results: Measured = measured;
const times = timesLines(entries, results);
const curves = costCurves(entries, results);
const judged = figures(results);
console.log(`cpu-peers  (${rotations} rotations, median [p10 – p90]; ${machine.cpu}, ${machine.cores} cores)\n`);
printTimes(times);
printCurves(curves);
printSample("a prompt's memory beside the weights", memory);
printFigures(judged);
writeResult(flags.short ? "cpu-peers-short" : "cpu-peers", {
  machine,
  figures: judged.map((figure) => ({
    ...figure,
    must_reached: reaches(figure, figure.must),
    goal_reached: reaches(figure, figure.goal),
  })),
  times,
  curves,
  memory,
  measured: Object.fromEntries(measured),
});
if (judged.some((figure) => !reaches(figure, figure.must))) process.exitCode = 1;
