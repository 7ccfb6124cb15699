/**
 * What a speculative round costs on a pair so small that little but the host's work is left: our scheduler against the
 * Python mlx-dspark, the same golden folders, the same tokens, greedy, the same cap, without lookup.
 *
 * Usage: bun bench/speculation/round-overhead.ts [--rounds N]
 */
import { copyFileSync, cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { drafterRoot } from "../../test/support/drafter-golden.ts";
import { smollm2Folder } from "../../test/support/smollm2.ts";
import { benchPythonWithReference } from "../setup.ts";
import { Contender } from "../support/contender.ts";
import { alternate, pairedSpread, type Rounds, valuesOf } from "../support/paired.ts";
import { type Line, report } from "../support/report.ts";
import { roundsFlag } from "../support/rounds-flag.ts";
import { spread } from "../support/statistics.ts";

const [TOKENS, CAP] = [400, 3];
/** What the project promises of the host's part of a round. */
const RATIO_MAX = 0.5;

async function measure(): Promise<Rounds> {
  const python = benchPythonWithReference();
  const folder = mkdtempSync(join(tmpdir(), "tiny-pair-"));
  try {
    cpSync(join(drafterRoot, "target_det"), folder, { recursive: true });
    // The reference wants a tokenizer, whose text nobody reads.
    const named = await smollm2Folder(join(import.meta.dir, "../../build/bench/smollm2"));
    for (const file of readdirSync(named).filter((name) => /^(tokenizer|special)/.test(name)))
      copyFileSync(join(named, file), join(folder, file));
    const size = [folder, join(drafterRoot, "loops/drafter_dspark"), String(TOKENS), String(CAP)];
    const ours = [process.execPath, join(import.meta.dir, "round-overhead-ours.ts"), ...size];
    const peer = [python, join(import.meta.dir, "../python/round_overhead.py"), ...size];
    const sides = [Contender.start("ours", ours), Contender.start("mlx-dspark in Python", peer)];
    return await alternate(sides, { rounds: roundsFlag(8), warmup: 2 });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const PEER = "mlx-dspark in Python";

function ratio(measured: string, label: string, limit?: number): Line {
  const value = pairedSpread(rounds, ["ours", PEER], measured, (a, b) => a / b);
  return { name: `ours / Python, ${label}`, unit: "×", value, ...(limit === undefined ? {} : { limit }) };
}

function microseconds(side: string): Line {
  const value = spread(valuesOf(rounds, side, "thread_ns").map((nanoseconds) => nanoseconds / 1000));
  return { name: `${side}, CPU of the calling thread per round`, unit: "µs", value };
}

const rounds = await measure();
const [ours, theirs] = ["ours", PEER].map((side) => valuesOf(rounds, side, "checksum")[0]);
if (ours !== theirs) throw new Error("the two sides generated different tokens: nothing is compared");
const lines = [
  microseconds("ours"),
  microseconds(PEER),
  ratio("thread_ns", "CPU of the calling thread", RATIO_MAX),
  ratio("process_ns", "CPU of all threads"),
  ratio("wall_ns", "wall"),
];
if (!report("speculation-round-overhead", lines, rounds)) process.exitCode = 1;
