/**
 * What a decode step costs beside MLX's evaluation, on a model so small that little else is left: our scheduler against
 * mlx-lm's generate_step, the same folder, the same tokens, greedy. See README.md for what the lines mean.
 *
 * Usage: bun bench/engine/host-overhead.ts [--rounds N]
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeTinyLlama } from "../../test/support/tiny-llama.ts";
import { benchPython } from "../setup.ts";
import { Contender } from "../support/contender.ts";
import { alternate, pairedSpread, type Rounds, valuesOf } from "../support/paired.ts";
import { type Line, report } from "../support/report.ts";
import { roundsFlag } from "../support/rounds-flag.ts";
import { spread } from "../support/statistics.ts";

const PROMPT_TOKENS = 8;
const STEPS = 500;
/** What the project promises: the host's part of a step costs no more than mlx-lm's. */
const RATIO_MAX = 1;

async function measure(): Promise<Rounds> {
  const python = benchPython();
  const model = mkdtempSync(join(tmpdir(), "tiny-llama-"));
  try {
    writeTinyLlama(model);
    const size = [model, String(PROMPT_TOKENS), String(STEPS)];
    const ours = [process.execPath, join(import.meta.dir, "host-overhead-ours.ts"), ...size];
    const peer = [python, join(import.meta.dir, "../python/host_overhead.py"), ...size];
    const sides = [Contender.start("ours", ours), Contender.start("mlx-lm", peer)];
    return await alternate(sides, { rounds: roundsFlag(12), warmup: 2 });
  } finally {
    rmSync(model, { recursive: true });
  }
}

function microseconds(side: string, measured: string, label: string): Line {
  return {
    name: `${side}, ${label}`,
    unit: "µs",
    value: spread(valuesOf(rounds, side, measured).map((nanoseconds) => nanoseconds / 1000)),
  };
}

function ratio(measured: string, label: string, limit?: number): Line {
  const value = pairedSpread(rounds, ["ours", "mlx-lm"], measured, (a, b) => a / b);
  return { name: `ours / mlx-lm, ${label}`, unit: "×", value, ...(limit === undefined ? {} : { limit }) };
}

const rounds = await measure();
const [ours, theirs] = ["ours", "mlx-lm"].map((side) => valuesOf(rounds, side, "checksum")[0]);
if (ours !== theirs) throw new Error("the two sides generated different tokens: nothing is compared");

const lines = [
  microseconds("ours", "outside_thread_ns", "CPU per step outside evaluation"),
  microseconds("mlx-lm", "outside_thread_ns", "CPU per step outside evaluation"),
  ratio("outside_thread_ns", "CPU outside evaluation", RATIO_MAX),
  ratio("outside_wall_ns", "wall outside evaluation", RATIO_MAX),
  ratio("thread_ns", "CPU of the calling thread, evaluation's scheduling too"),
  ratio("process_ns", "CPU of all threads"),
  ratio("wall_ns", "wall"),
  microseconds("ours", "wall_ns", "wall per step"),
  microseconds("mlx-lm", "wall_ns", "wall per step"),
];
if (!report("engine-host-overhead", lines, rounds)) process.exitCode = 1;
