/**
 * What speculation gains on the real pair in one process: every prompt by plain decoding, `auto` and lookup alone, in turns
 * whose order moves on, greedy. Per kind of prompt the decode time of all its prompts, baseline over arm, one ratio a trial.
 *
 * Usage: bun bench/speculation/gain.ts [--trials N] [--tokens N] [--threads N] [--kinds chat,code,…]
 */
import { parseArgs } from "node:util";
import {
  type Generation,
  generate,
  loadPair,
  lookupGenerate,
  type Pair,
  speculativeGenerate,
} from "../../src/index.ts";
import { describeMachine, writeResult } from "../support/report.ts";
import { type Spread, spread } from "../support/statistics.ts";
import { readPrompts } from "./prompts.ts";

/** What must hold: no prompt set is slower, and text that repeats its prompt is twice as fast by lookup. */
const AUTO_MIN = 0.98;
const COPY_MIN = 2;

const { values: flags } = parseArgs({
  options: {
    trials: { type: "string", default: "5" },
    tokens: { type: "string", default: "96" },
    threads: { type: "string", default: "1" },
    kinds: { type: "string" },
  },
});
const [trials, maxNewTokens, threads] = [Number(flags.trials), Number(flags.tokens), Number(flags.threads)];
for (const [name, value] of Object.entries({ trials, tokens: maxNewTokens, threads }))
  if (!Number.isInteger(value) || value < 1) throw new RangeError(`--${name} must be a positive integer`);

type Arm = "baseline" | "auto" | "lookup";
const ARMS: Readonly<Record<Arm, (pair: Pair, tokens: Int32Array) => Generation>> = {
  baseline: (pair, tokens) => generate(pair, { tokens }, { maxNewTokens }),
  auto: (pair, tokens) => speculativeGenerate(pair, { tokens }, { maxNewTokens }),
  lookup: (pair, tokens) => lookupGenerate(pair, { tokens }, { maxNewTokens }),
};
const NAMES = Object.keys(ARMS) as Arm[];

interface Cell {
  seconds: number;
  tokens: number;
  rounds: number;
  parked: number;
}

await using pair = await loadPair("smollm2-135m", { maxBatch: 1, threads, offline: true });
const wanted = flags.kinds?.split(",");
const { prompts: all } = await readPrompts(pair.target.dir);
const prompts = all.filter(({ kind }) => wanted?.includes(kind) ?? true);
if (prompts.length === 0) throw new RangeError(`--kinds ${flags.kinds}: no such prompts`);
const kinds = [...new Set(prompts.map(({ kind }) => kind))];
const cells = new Map<string, Cell>();
const cell = (kind: string, arm: Arm, trial: number): Cell => {
  const key = `${kind} ${arm} ${trial}`;
  const found = cells.get(key) ?? { seconds: 0, tokens: 0, rounds: 0, parked: 0 };
  cells.set(key, found);
  return found;
};

let different = 0;
// One more trial first, that counts for nothing: the caps' controller learns what drafts are worth here.
for (let trial = -1; trial < trials; trial++) {
  console.error(trial < 0 ? "warming up" : `trial ${trial + 1} of ${trials}`);
  for (const [index, { kind, ids }] of prompts.entries()) {
    if (trial < 0 && index % 5 > 0) continue;
    const first = (trial + 1 + index) % NAMES.length;
    const texts = new Set<string>();
    for (const arm of [...NAMES.slice(first), ...NAMES.slice(0, first)]) {
      const { tokenIds, stats } = await ARMS[arm](pair, Int32Array.from(ids));
      texts.add(tokenIds.join());
      const sum = cell(kind, arm, trial);
      sum.seconds += stats.decodeSeconds;
      sum.tokens += stats.completionTokens - 1;
      sum.rounds += stats.rounds;
      sum.parked += stats.parkedRounds;
    }
    if (texts.size > 1) different++;
  }
}

const table = kinds.flatMap((kind) =>
  NAMES.slice(1).map((arm) => {
    const each = Array.from({ length: trials }, (_, trial) => [cell(kind, "baseline", trial), cell(kind, arm, trial)]);
    const gains = each.map(([plain, own]) => (plain?.seconds ?? 0) / (own?.seconds ?? 1));
    const total = (value: (cell: Cell) => number) => each.reduce((sum, [, own]) => sum + (own ? value(own) : 0), 0);
    return {
      kind,
      arm,
      gain: spread(gains) satisfies Spread,
      committed:
        total((c) => c.tokens) /
        Math.max(
          1,
          total((c) => c.rounds),
        ),
      parked:
        total((c) => c.parked) /
        Math.max(
          1,
          total((c) => c.rounds),
        ),
    };
  }),
);
console.log(
  `gain of decoding, ${prompts.length} prompts, ${trials} trials, ${threads} thread(s), up to ${maxNewTokens} tokens`,
);
console.log("  kind        arm      baseline / arm        committed a round  parked");
for (const { kind, arm, gain, committed, parked } of table) {
  const range = `${gain.median.toFixed(2)} [${gain.p10.toFixed(2)} – ${gain.p90.toFixed(2)}]`;
  console.log(
    `  ${kind.padEnd(10)}  ${arm.padEnd(7)}  ${range.padEnd(22)} ${committed.toFixed(2).padStart(6)}  ${(100 * parked).toFixed(0).padStart(14)} %`,
  );
}
const losing = table.filter(({ arm, gain }) => arm === "auto" && gain.median < AUTO_MIN).map(({ kind }) => kind);
const copying = Math.max(0, ...table.filter(({ kind }) => kind === "copy").map(({ gain }) => gain.median));
const copies = copying >= COPY_MIN || !kinds.includes("copy");
const holds = losing.length === 0 && copies && different === 0;
console.log(
  `  auto is at least ${AUTO_MIN} everywhere: ${losing.length === 0 ? "holds" : `FAILS for ${losing.join(", ")}`}`,
);
console.log(`  copying gains at least ${COPY_MIN}: ${copying >= COPY_MIN ? "holds" : "FAILS"}`);
console.log(`  prompts with differing texts: ${different}`);
writeResult("speculation-gain", { machine: describeMachine(), trials, maxNewTokens, threads, table, different });
process.exitCode = holds ? 0 : 1;
