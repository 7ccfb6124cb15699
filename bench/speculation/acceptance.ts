/**
 * Acceptance against the Python mlx-dspark on the same target, drafter, prompts and cap, both in greedy decoding with
 * the drafter alone: committed tokens per round, overall and by kind of prompt. The ratio must be within two per cent.
 *
 * Usage: bun bench/speculation/acceptance.ts [--cap N] [--bits 0|4] [--tokens N] [--prompts FILE] [--alone] [--limited]
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { request } from "../../test/engine/tiny.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { difference, runAll, speculator } from "../../test/support/pairs.ts";
import { drafterAsTrained, drafterFolder, loadSmollm2, smollm2Folder } from "../../test/support/smollm2.ts";
import { benchPythonWithReference } from "../setup.ts";
import { describeMachine, writeResult } from "../support/report.ts";
import { readPrompts } from "./prompts.ts";

const TOLERANCE = 0.02;

const { values: flags } = parseArgs({
  options: {
    cap: { type: "string", default: "3" },
    bits: { type: "string", default: "4" },
    tokens: { type: "string", default: "96" },
    prompts: { type: "string" },
    /** Ours drafts from the frequent ids only, as the program does. */
    limited: { type: "boolean", default: false },
    /** Ours only. */
    alone: { type: "boolean", default: false },
  },
});
const cap = Number(flags.cap);
const maxNewTokens = Number(flags.tokens);
const bits = flags.bits === "0" ? 0 : 4;
if (!Number.isInteger(cap) || cap < 0) throw new RangeError("--cap must be a number of drafts, 0 for the whole block");
if (!Number.isInteger(maxNewTokens) || maxNewTokens < 2) throw new RangeError("--tokens must be at least 2");

interface Answer {
  readonly ids: readonly number[];
  /** Committed by each round; the first token belongs to none. */
  readonly accept_lengths: readonly number[];
}

interface Tally {
  rounds: number;
  committed: number;
}

openTestMlx();
const files = join(import.meta.dir, "../../build/bench");
mkdirSync(files, { recursive: true });
const folder = await smollm2Folder(join(files, "smollm2"));
/** The whole vocabulary: the reference knows no shorter head, and `--limited` shows what ours costs. */
const drafter = flags.limited ? drafterFolder : drafterAsTrained(join(files, "drafter-as-trained"));
const { prompts, eosIds } = await readPrompts(folder, flags.prompts);
const ours = oursAnswers();
const theirs = flags.alone ? null : await theirAnswers();

function oursAnswers(): Answer[] {
  const pair = loadSmollm2(folder, bits, "fused", drafter);
  const asked = prompts.map(({ ids }) => request({ promptIds: ids, maxNewTokens, eosIds }));
  const policy = speculator({ drafter: pair.drafter, cap });
  const rows = runAll(pair, asked, { maxBatch: 4, speculator: policy });
  pair.dispose();
  return rows.map(({ ids, stats }) => ({ ids, accept_lengths: stats?.acceptLengths ?? [] }));
}

async function theirAnswers(): Promise<Answer[]> {
  const task = {
    cap: cap === 0 ? null : cap,
    bits,
    max_new_tokens: maxNewTokens,
    prompts: prompts.map(({ ids }) => ids),
  };
  const script = join(import.meta.dir, "../python/mlx_dspark_acceptance.py");
  const child = Bun.spawn([benchPythonWithReference(), script, folder, drafterFolder], {
    stdin: new Blob([JSON.stringify(task)]),
    stdout: "pipe",
    stderr: "inherit",
  });
  const lines = (await new Response(child.stdout).text()).split("\n").filter((line) => line.startsWith("{"));
  if ((await child.exited) !== 0) throw new Error("the Python side failed");
  return lines.map((line) => JSON.parse(line) as Answer);
}

/**
 * Rounds without the last of each answer: the reference drafts beyond the limit there, we do not. Up to the first token
 * that differs, after which the answers are two texts.
 */
function tally(answers: readonly Answer[], others: readonly Answer[] | null, kind: string | null): Tally {
  const sum = { rounds: 0, committed: 0 };
  for (const [i, answer] of answers.entries()) {
    if (kind !== null && prompts[i]?.kind !== kind) continue;
    const shared = others === null ? answer.ids.length : sharedLength(answer.ids, others[i]?.ids ?? []);
    let at = 1;
    for (const length of answer.accept_lengths.slice(0, -1)) {
      at += length;
      if (at > shared) break;
      sum.rounds++;
      sum.committed += length;
    }
  }
  return sum;
}

function sharedLength(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((id, i) => id !== b[i]);
  return at < 0 ? a.length : at;
}

const kinds = [null, ...new Set(prompts.map(({ kind }) => kind))];
const table = kinds.map((kind) => {
  const [own, other] = [tally(ours, theirs, kind), theirs === null ? null : tally(theirs, ours, kind)];
  const mean = ({ rounds, committed }: Tally) => committed / Math.max(1, rounds);
  return {
    kind: kind ?? "all",
    rounds: own.rounds,
    ours: mean(own),
    theirs: other === null ? null : mean(other),
    ratio: other === null ? null : mean(own) / mean(other),
  };
});
const identical = theirs?.filter(({ ids }, i) => difference(ids, ours[i]?.ids ?? []) === "").length ?? null;
console.log(
  `acceptance, cap ${cap === 0 ? "whole block" : cap}, drafter of ${bits === 0 ? "16" : bits} bits, ${prompts.length} prompts`,
);
console.log("  kind        rounds    ours  theirs   ratio");
for (const { kind, rounds, ours: own, theirs: other, ratio } of table) {
  const cells = [own, other, ratio].map((value) => (value === null ? "–" : value.toFixed(3)).padStart(7));
  console.log(`  ${kind.padEnd(10)} ${String(rounds).padStart(7)} ${cells.join(" ")}`);
}
if (identical !== null) console.log(`  the same text for ${identical} of ${prompts.length} prompts`);
const overall = table[0]?.ratio ?? null;
const holds = overall === null || Math.abs(overall - 1) <= TOLERANCE;
if (overall !== null) console.log(`  must be within ±${100 * TOLERANCE} %: ${holds ? "holds" : "FAILS"}`);
if (theirs !== null)
  writeResult("acceptance", { machine: describeMachine(), cap, bits, maxNewTokens, table, identical });
process.exitCode = holds ? 0 : 1;
