/**
 * The product on a CPU (TypeScript, FFI, MLX, the fused backend: steps as the engine runs them) against llama.cpp on the
 * same weights and in its best format, and against mlx-lm in float32; the hand-made forward on the same kernels shows what
 * graph and FFI cost. In strict turns, in an order that moves on by one side every rotation. See README.md.
 *
 * Usage: bun bench/cpu/peers.ts [--short] [--rounds N]
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import type { Sample } from "../support/contender.ts";
import { describeMachine, writeResult } from "../support/report.ts";
import { figures, type Measured, reaches } from "./figures.ts";
import { dose, type Entry, entryName, FULL, OURS, type Plan, SHORT, type SideName } from "./plan.ts";
import { type Side, startSides } from "./sides.ts";
import { costCurves, printCurves, printFigures, printSample, printTimes, timesLines } from "./table.ts";

const { values: flags } = parseArgs({ options: { short: { type: "boolean" }, rounds: { type: "string" } } });

function chosenPlan(): Plan {
  const plan = flags.short ? SHORT : FULL;
  const rotations = flags.rounds === undefined ? plan.rotations : Number(flags.rounds);
  if (!Number.isInteger(rotations) || rotations < 1) throw new RangeError("--rounds must be a positive integer");
  return { ...plan, rotations };
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

function sideOf(name: SideName): Side {
  const side = sides.get(name);
  if (side === undefined) throw new RangeError(`there is no side ${name}`);
  return side;
}

/** Long entries are not run for nothing: what has to get warm does so in the short ones. */
async function warmUp(plan: Plan): Promise<void> {
  for (const entry of plan.entries) if (entry.task.kind !== "prefill") await measureEntry(entry, 0);
}

async function measureAll(plan: Plan): Promise<Measured> {
  const measured = new Map<string, Record<string, Sample>[]>(plan.entries.map((entry) => [entryName(entry), []]));
  await warmUp(plan);
  for (let rotation = 0; rotation < plan.rotations; rotation++) {
    for (const entry of plan.entries) measured.get(entryName(entry))?.push(await measureEntry(entry, rotation));
    console.error(`rotation ${rotation + 1} of ${plan.rotations}, ${Math.round(performance.now() / 1000)} s`);
  }
  return measured;
}

const plan = chosenPlan();
const sides = await startSides();
let memory: Sample = {};
let measured: Measured;
try {
  for (const [name, side] of sides) {
    const answer = await side.prepare({ kind: "prepare", contexts: plan.contexts, threads: availableParallelism() });
    if (name === OURS) memory = answer;
  }
  measured = await measureAll(plan);
} finally {
  await Promise.all([...sides.values()].map((side) => side.stop()));
}

const machine = describeMachine();
const times = timesLines(plan, measured);
const curves = costCurves(plan, measured);
const judged = figures(measured);
console.log(`cpu-peers  (${plan.rotations} rotations, median [p10 – p90]; ${machine.cpu}, ${machine.cores} cores)\n`);
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
