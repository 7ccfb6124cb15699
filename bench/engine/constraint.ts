/**
 * What a grammar costs a round: the same rounds of SmolLM2 with and without one, in turns within one process, at states
 * that give each form of mask, plain and with drafts. Judged by the cost of one masked row over that of a free plain
 * round: (with − without) / rows.
 *
 * Usage: bun bench/engine/constraint.ts [--rounds N]
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kvStates } from "../../src/cache/state-factory.ts";
import { vocabularySize } from "../../src/checkpoint/vocabulary.ts";
import type { CompiledConstraint, ConstraintSpec, RowConstraint } from "../../src/decoding/constraint.ts";
import type { PlannedDraft } from "../../src/decoding/draft-blocks.ts";
import { runRound } from "../../src/decoding/round.ts";
import { Row } from "../../src/decoding/row.ts";
import { Sampler } from "../../src/decoding/sampler.ts";
import { scheduleStep } from "../../src/decoding/step.ts";
import { tokenMask } from "../../src/decoding/token-mask.ts";
import { GrammarPool } from "../../src/engine/grammar/pool.ts";
import { loadTarget } from "../../src/models/load.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { TextTokenizer } from "../../src/text/index.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { GREEDY } from "../../test/support/sampling.ts";
import { smollm2Folder } from "../../test/support/smollm2.ts";
import { type Times, timed } from "../support/clock.ts";
import type { Sample } from "../support/contender.ts";
import { valuesOf } from "../support/paired.ts";
import { type Line, report } from "../support/report.ts";
import { roundsFlag } from "../support/rounds-flag.ts";
import { spread } from "../support/statistics.ts";

/** Each goes on for ever and has one kind of mask; its end is something that no model says. */
const GRAMMARS = {
  "few legal": { ebnf: 'root ::= [0-9] root | "~^~^"', draft: "1" },
  "few illegal": { ebnf: 'root ::= [^"\\\\\\x00-\\x1F] root | "\\\\~^~^"', draft: " a" },
  dense: { ebnf: 'root ::= [a-z ] root | "~^~^"', draft: " a" },
} as const;
const DRAFTS = [0, 6] as const;
/** Of a free plain round, for each masked row. */
const LIMIT = 0.1;
const STEPS = 25;
const WARMUP = 2;
const PROMPT = Array.from({ length: 24 }, (_, i) => 300 + 17 * i);

const count = roundsFlag(12);
openTestMlx();
const folder = mkdtempSync(join(tmpdir(), "constraint-"));
const dir = await smollm2Folder(folder);
const { compute, dtype } = chooseCompute(process.env);
const { model, stateLayout } = loadTarget(dir, compute, { dtype });
const vocab = Math.min(vocabularySize(dir) ?? model.vocabSize, model.vocabSize);
const tokenizer = await TextTokenizer.load(dir);
const end = tokenizer.tokenId("<|im_end|>") ?? 2;
const pool = new GrammarPool({ dir, vocabSize: vocab });

type Name = keyof typeof GRAMMARS;

function compile(name: Name): Promise<CompiledConstraint> {
  const { ebnf } = GRAMMARS[name];
  const spec: ConstraintSpec = {
    kind: "ebnf",
    ebnf,
    markers: [],
    counters: null,
    start: { kind: "at_once" },
    relaxed: [],
  };
  return new Promise((resolve, reject) => {
    pool.compile(spec, ({ compiled, error }) => (compiled === null ? reject(error) : resolve(compiled)));
  });
}

/** The one token of a text. */
function idOf(text: string): number {
  const steps = tokenizer.encodeInSteps({ token: null, text }, false);
  let step = steps.next();
  while (!step.done) step = steps.next();
  const [id, ...more] = step.value;
  if (id === undefined || more.length > 0) throw new Error(`"${text}" is not one token`);
  return id;
}

/** Times of a round over `STEPS` of them, the prompt's own left out. */
function decode(drafts: number, draftId: number, constraint: RowConstraint | null): Times {
  const sampler = new Sampler(GREEDY, vocab, PROMPT);
  const maxNew = 1 + STEPS * (drafts + 1);
  const states = model.newStates(kvStates(0, stateLayout), PROMPT.length + maxNew + drafts + 2);
  const row = new Row(PROMPT, states, sampler, { maxNew, eos: new Set([end]), topLogprobs: null }, null, constraint);
  scheduleStep(model, [{ row, kind: "prefill", count: PROMPT.length }], vocab).settle();
  const tokens = new Int32Array(drafts).fill(draftId);
  const draft: PlannedDraft = drafts === 0 ? { source: "plain" } : { source: "lookup", tokens };
  const times = timed(STEPS, () => {
    for (let i = 0; i < STEPS; i++) {
      const { settled, failed } = runRound(model, [{ row, draft }], { drafter: null, vocab });
      if (failed[0] !== undefined) throw failed[0].error;
      if (drafts > 0 && settled[0]?.cut) throw new Error("a draft was cut: it costs less than it should");
    }
  });
  row.dispose();
  return times;
}

const compiled = new Map<Name, CompiledConstraint>();
const open = (name: Name) => {
  const grammar = compiled.get(name);
  if (grammar === undefined) throw new Error(name);
  return pool.open(grammar, { eosIds: [end] });
};
for (const name of Object.keys(GRAMMARS) as Name[]) {
  compiled.set(name, await compile(name));
  const row = open(name);
  const words = row.masks([]).words();
  console.log(`${name}: ${tokenMask(words, vocab).kind} at its beginning`);
  row[Symbol.dispose]();
}

interface Arm {
  readonly key: string;
  measure(): Sample;
}
const arms: Arm[] = DRAFTS.flatMap((drafts): Arm[] => [
  { key: `free ${drafts}`, measure: () => ({ ...decode(drafts, idOf(" a"), null) }) },
  ...(Object.keys(GRAMMARS) as Name[]).map((name) => ({
    key: `${name} ${drafts}`,
    measure: () => ({ ...decode(drafts, idOf(GRAMMARS[name].draft), open(name)) }),
  })),
]);
const rounds: Record<string, Sample>[] = [];
for (let round = -WARMUP; round < count; round++) {
  const samples: Record<string, Sample> = {};
  for (const { key, measure } of round % 2 === 0 ? arms : [...arms].reverse()) samples[key] = measure();
  if (round >= 0) rounds.push(samples);
}

/** Of a masked row, over a free plain round. */
function cost(name: Name, drafts: number, measured: "wall_ns" | "process_ns"): number[] {
  const [plain = [], free = [], masked = []] = ["free 0", `free ${drafts}`, `${name} ${drafts}`].map((key) =>
    valuesOf(rounds, key, measured),
  );
  return masked.map((ns, i) => (ns - (free[i] ?? Number.NaN)) / (drafts + 1) / (plain[i] ?? Number.NaN));
}
const lines: Line[] = [
  ...DRAFTS.map((drafts) => ({
    name: `free, ${drafts + 1} rows`,
    unit: "µs" as const,
    value: spread(valuesOf(rounds, `free ${drafts}`, "wall_ns").map((ns) => ns / 1000)),
  })),
  ...(Object.keys(GRAMMARS) as Name[]).flatMap((name) =>
    DRAFTS.flatMap((drafts): Line[] => {
      const title = `${name}, ${drafts + 1} rows: a row`;
      const value = (measured: "wall_ns" | "process_ns") => spread(cost(name, drafts, measured));
      return [
        { name: `${title}, CPU of all threads`, unit: "×", value: value("process_ns"), limit: LIMIT },
        { name: `${title}, wall`, unit: "×", value: value("wall_ns") },
      ];
    }),
  ),
];
const held = report("engine-constraint", lines, rounds);
for (const grammar of compiled.values()) grammar[Symbol.dispose]();
pool.close();
model.dispose();
rmSync(folder, { recursive: true });
if (!held) process.exitCode = 1;
