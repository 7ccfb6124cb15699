/**
 * How much of what drafts promise becomes speed: decode speedup over (tokens committed a round ÷ what such a round costs
 * in plain steps by the costs measured at load). The real pair, and a synthetic one of its size that accepts nine drafts
 * in ten; every cap that a user may fix, lookup off, baseline and arms in turns in one process.
 *
 * Usage: bun bench/speculation/efficiency.ts [--trials N] [--tokens N] [--threads N]
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Arm, BASELINE } from "../../src/cli/benchmark/arms.ts";
import { measureAll, type Runs } from "../../src/cli/benchmark/measure.ts";
import { summarize } from "../../src/cli/benchmark/summary.ts";
import { loadPair, type Pair } from "../../src/index.ts";
import { describeMachine, writeResult } from "../support/report.ts";
import { type Spread, spread } from "../support/statistics.ts";
import { readPrompts } from "./prompts.ts";
import { syntheticPair } from "./synthetic-pair.ts";

const EFFICIENCY_MIN = 0.9;
const CAPS = [1, 2, 3, 4, 6, "auto"] as const;

const { values: flags } = parseArgs({
  options: {
    trials: { type: "string", default: "5" },
    tokens: { type: "string", default: "128" },
    threads: { type: "string", default: "1" },
  },
});
const [trials, maxNewTokens, threads] = [Number(flags.trials), Number(flags.tokens), Number(flags.threads)];
for (const [name, value] of Object.entries({ trials, tokens: maxNewTokens, threads }))
  if (!Number.isInteger(value) || value < 1) throw new RangeError(`--${name} must be a positive integer`);

const arms: readonly Arm[] = [
  BASELINE,
  ...CAPS.map((cap): Arm => {
    const speculation = { mode: "pair", maxDraft: cap, lookupDrafts: false } as const;
    return { label: `cap ${cap}`, mode: "dspark", speculation };
  }),
];
/** Four of the benchmark's names, which stand for one prompt of each kind here. */
const NAMES = ["chat", "code", "math", "copy"] as const;

interface Prompt {
  readonly name: (typeof NAMES)[number];
  readonly ids: readonly number[];
}

interface Measurement {
  readonly pair: string;
  readonly arm: string;
  readonly accept: number;
  readonly plainSteps: number | null;
  readonly gain: Spread;
  readonly efficiency: number;
}

async function promptsOf(target: string): Promise<Prompt[]> {
  const { prompts: all } = await readPrompts(target);
  const kinds = [...new Set(all.map(({ kind }) => kind))];
  return NAMES.map((name, i) => ({ name, ids: all.find(({ kind }) => kind === kinds[i])?.ids ?? [] }));
}

async function efficiencies(name: string, pair: Pair): Promise<Measurement[]> {
  const context = {
    engine: pair.client,
    eosIds: [],
    maxNewTokens,
    contextWindow: pair.target.contextWindow,
    signal: new AbortController().signal,
  };
  const { status } = pair.client;
  const costs = status.state === "ready" ? (status.model.drafting?.costs ?? null) : null;
  // One more trial first, that counts for nothing.
  await measureAll(context, arms, prompts.slice(0, 1), 1, () => undefined);
  const runs = await measureAll(context, arms, prompts, trials, (trial, prompt) => {
    console.error(`${name}: trial ${trial + 1} of ${trials}, ${prompt}`);
  });
  const each = Array.from({ length: trials }, (_, trial) => summarize(trialOf(runs, trial), costs));
  return summarize(runs, costs)
    .slice(1)
    .map(({ arm, row, efficiency, split }, i) => ({
      pair: name,
      arm: arm.label,
      accept: row.accept,
      plainSteps: split?.plainSteps ?? null,
      gain: spread(each.map((summaries) => summaries[i + 1]?.decodeSpeedup ?? 0)),
      efficiency: efficiency ?? 0,
    }));
}

function trialOf(runs: Runs, trial: number): Runs {
  return new Map(
    [...runs].map(([arm, cells]) => [
      arm,
      new Map([...cells].map(([name, all]) => [name, all.slice(trial, trial + 1)])),
    ]),
  );
}

const options = { maxBatch: 1, threads, offline: true } as const;
const root = join(import.meta.dir, "../..");
const table: Measurement[] = [];
let folder = "";
let prompts: Prompt[] = [];
{
  await using pair = await loadPair("smollm2-135m", options);
  folder = pair.target.dir;
  prompts = await promptsOf(folder);
  table.push(...(await efficiencies("real", pair)));
}
{
  const built = syntheticPair(
    join(root, "build/bench/synthetic-pair"),
    folder,
    join(root, "assets/smollm2-135m-dspark"),
  );
  await using pair = await loadPair(built.target, { ...options, drafter: built.drafter });
  table.push(...(await efficiencies("synthetic", pair)));
}

console.log(
  `loop efficiency, ${trials} trials, ${threads} thread(s), ${maxNewTokens} tokens of ${prompts.length} prompts`,
);
console.log("  pair       drafts    accept  plain steps a round  gain                    of what that promises");
for (const { pair, arm, accept, plainSteps, gain, efficiency } of table) {
  const range = `${gain.median.toFixed(2)} [${gain.p10.toFixed(2)} – ${gain.p90.toFixed(2)}]`;
  const figures = [accept.toFixed(2).padStart(6), (plainSteps?.toFixed(2) ?? "–").padStart(20)].join(" ");
  console.log(
    `  ${pair.padEnd(9)}  ${arm.padEnd(8)} ${figures}  ${range.padEnd(24)}${(100 * efficiency).toFixed(0)} %`,
  );
}
const failing = table.filter(({ efficiency }) => efficiency < EFFICIENCY_MIN);
console.log(`  at least ${100 * EFFICIENCY_MIN} %: ${failing.length === 0 ? "holds" : "FAILS"}`);
writeResult("speculation-efficiency", { machine: describeMachine(), trials, maxNewTokens, threads, table });
process.exitCode = failing.length === 0 ? 0 : 1;
